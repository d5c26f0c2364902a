/** ONNX files with another number of labels, by their bytes (`tuner_labels.onnx_rows` in Python). */

import { type Bytes, encode, joined, TunerError, viewOf } from "./bytes.ts";
import { type Field, fields, first, inside, text, whole } from "./onnx.ts";
import type { Tensor } from "./tensors.ts";

/** Numbers of fields, as onnx.proto3 has them: of ModelProto, and of GraphProto. */
const [GRAPH, METADATA] = [7, 14];
const [NODE, INITIALISER, INPUT, OUTPUT, VALUE_INFO] = [1, 5, 11, 12, 13];
const [FLOAT32, INT64] = [1, 7];
/** Metadata of a step, and the constant that is added to it. */
const [STEP, COUNT] = ["tuner.step", "/labels"];
/** Operators whose output has labels where an input has, on the way from a label to the gradient of the head's bias. */
const PASSES = new Set(["Add", "Div", "Mul", "Neg", "ReduceSum", "Sub"]);

/** A node of a graph: its operator, and the names of what it reads and gives. */
export interface Node {
  readonly operator: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/** Return the nodes of a file, in the order they are computed in. */
export function nodesOf(model: Uint8Array): Node[] {
  const nodes = [...inside(model, whole(model), GRAPH)].flatMap((graph) => [...inside(model, graph, NODE)]);
  return nodes.map((node) => {
    const texts = (number: number): string[] => [...inside(model, node, number)].map((field) => text(model, field));
    return { operator: texts(4)[0]!, inputs: texts(1), outputs: texts(2) };
  });
}

/** Return the outputs of a training step's nodes that make tensors of as many numbers as there are labels. */
export function countedNodes(model: Uint8Array, count: number): Set<string> {
  const counts = new Set<string>();
  for (const graph of inside(model, whole(model), GRAPH)) {
    for (const tensor of inside(model, graph, INITIALISER)) {
      const value = first(inside(model, tensor, 9));
      if (!value || value.end - value.begin !== 8) continue;
      if (viewOf(model).getBigInt64(value.begin, true) === BigInt(count)) counts.add(text(model, first(inside(model, tensor, 8))));
    }
  }
  const [found, wide] = [new Set<string>(), new Set<string>()];
  for (const { operator, inputs, outputs } of nodesOf(model)) {
    if (operator === "OneHot") wide.add(outputs[0]!);
    if (operator === "OneHot" || (operator === "Reshape" && wide.has(inputs[0]!) && counts.has(inputs[1]!))) found.add(outputs[0]!);
    else if (PASSES.has(operator) && inputs.some((name) => wide.has(name))) outputs.forEach((name) => wide.add(name));
  }
  return found;
}

/** What changes in a file with another number of labels. */
export interface Resize {
  readonly count: number;
  /** Axis of the labels by the name of an input or output: the first, 0, or the last, -1. */
  readonly axes: ReadonlyMap<string, 0 | -1>;
  /** New values of initialisers, by name. */
  readonly tensors?: ReadonlyMap<string, Tensor>;
  /** Outputs of nodes whose second input is the number of labels; see `countedNodes`. */
  readonly counted?: ReadonlySet<string>;
}

/** Return a file with another number of labels. What it notes of values in between is left out: that may name the old sizes. */
export function resized(model: Bytes, { count, axes, tensors = new Map(), counted = new Set() }: Resize): Bytes {
  const left = new Set(tensors.keys());
  const named = (part: Field, number: number): string => text(model, first(inside(model, part, number)));
  const graph = (part: Field): Uint8Array | undefined => {
    if (part.number === VALUE_INFO) return new Uint8Array();
    if (part.number === NODE) return counted.has(named(part, 2)) ? withSecond(model, part, COUNT) : undefined;
    if (part.number === INITIALISER) return left.delete(named(part, 8)) ? initialiser(named(part, 8), tensors.get(named(part, 8))!) : undefined;
    const axis = part.number === INPUT || part.number === OUTPUT ? axes.get(named(part, 1)) : undefined;
    return axis === undefined ? undefined : withSize(model, part, [2, 1, 2], axis, count);
  };
  const added = counted.size ? initialiser(COUNT, { type: "I64", shape: [1], data: BigInt64Array.of(BigInt(count)) }) : new Uint8Array();
  const changed = rewritten(model, whole(model), (part) => {
    if (part.number === GRAPH) return message(GRAPH, joined(rewritten(model, part, graph), added));
    if (part.number !== METADATA || named(part, 1) !== STEP) return undefined;
    const about = JSON.parse(named(part, 2)) as { inputs: { name: string; shape: number[] }[] };
    for (const { name, shape } of about.inputs) if (axes.has(name)) shape[axes.get(name) ? shape.length - 1 : 0] = count;
    return message(METADATA, joined(message(1, encode(STEP)), message(2, encode(JSON.stringify(about)))));
  });
  for (const name of left) throw new TunerError(`the model has no values of ${name}: export again`);
  return changed;
}

/** Return a tensor of float32 or int64 as a field of a graph. */
function initialiser(name: string, { type, shape, data }: Tensor): Uint8Array {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return message(INITIALISER, joined(...shape.map((extent) => integer(1, extent)), integer(2, type === "I64" ? INT64 : FLOAT32), message(8, encode(name)), message(9, bytes)));
}

/** Return a node that reads another second input: the depth of OneHot, the shape of Reshape. */
function withSecond(model: Uint8Array, node: Field, name: string): Uint8Array {
  const second = [...inside(model, node, 1)][1]!;
  return message(NODE, rewritten(model, node, ({ from }) => (from === second.from ? message(1, encode(name)) : undefined)));
}

/** Return a part of a file, each field as a function gives it, or as it is. */
function rewritten(model: Uint8Array, of: { begin: number; end: number }, change: (field: Field) => Uint8Array | undefined): Bytes {
  return joined(...[...fields(model, of.begin, of.end)].map((field) => change(field) ?? model.subarray(field.from, field.end)));
}

/** Return a value of a graph with another size of one axis; `path` leads to its shape. One that declares none stays. */
function withSize(model: Uint8Array, of: Field, path: readonly number[], axis: 0 | -1, size: number): Uint8Array {
  const [next, ...rest] = path;
  const wanted = [...inside(model, of, next ?? 1)].at(next ? 0 : axis);
  const change = (field: Field): Uint8Array | undefined => {
    if (field.from !== wanted?.from) return undefined;
    return next ? withSize(model, field, rest, axis, size) : message(1, integer(1, size));
  };
  return message(of.number, rewritten(model, of, change));
}

/** Return a number as a varint. */
function bytesOf(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) | 128, ...bytesOf(Math.floor(value / 128))];
}

/** Return a field that is a number. */
function integer(number: number, value: number): Uint8Array {
  return Uint8Array.from([...bytesOf(8 * number), ...bytesOf(value)]);
}

/** Return a field that is a message, text or bytes. */
function message(number: number, content: Uint8Array): Uint8Array {
  return joined(Uint8Array.from([...bytesOf(8 * number + 2), ...bytesOf(content.length)]), content);
}
