/** What of an ONNX file is read or changed by its bytes: metadata, shapes of inputs, values of weights, numbers of labels. */

import { type Bytes, decode, encode, joined, TunerError } from "./bytes.ts";
import type { Tensor } from "./tensors.ts";

/** Numbers of fields, as onnx.proto3 has them: of ModelProto, and of GraphProto. */
const GRAPH = 7;
const [INITIALISER, OUTPUT, VALUE_INFO] = [5, 12, 13];
const FLOAT32 = 1;

interface Field {
  /** Where its key begins. */
  readonly from: number;
  readonly number: number;
  readonly value: number; // of a varint
  readonly begin: number;
  readonly end: number;
}

function* fields(content: Uint8Array, begin: number, end: number): Generator<Field> {
  let at = begin;
  const varint = (): number => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      if (at >= end) throw new TunerError("the model file ends too early: export again");
      const byte = content[at++]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < end) {
    const from = at;
    const key = varint();
    const kind = key & 7;
    if (kind === 0) {
      yield { from, number: key >>> 3, value: varint(), begin: at, end: at };
      continue;
    }
    const size = kind === 2 ? varint() : kind === 1 ? 8 : kind === 5 ? 4 : -1;
    if (size < 0 || size > end - at) throw new TunerError("the model file is not ONNX: export again");
    yield { from, number: key >>> 3, value: 0, begin: at, end: at + size };
    at += size;
  }
}

function* inside(content: Uint8Array, of: { begin: number; end: number }, wanted: number): Generator<Field> {
  for (const field of fields(content, of.begin, of.end)) if (field.number === wanted) yield field;
}

const text = (content: Uint8Array, field: Field | undefined): string =>
  field ? decode(content.subarray(field.begin, field.end)) : "";
const whole = (content: Uint8Array): { begin: number; end: number } => ({ begin: 0, end: content.length });
const first = (found: Iterable<Field>): Field | undefined => [...found][0];

/** Return an entry of the file's metadata. */
export function metadataOf(model: Uint8Array, key: string): string | undefined {
  for (const entry of inside(model, whole(model), 14)) {
    if (text(model, first(inside(model, entry, 1))) === key) return text(model, first(inside(model, entry, 2)));
  }
  return undefined;
}

/** Return the declared sizes of the graph's inputs, by name; a size that varies is 0. */
export function inputShapes(model: Uint8Array): Map<string, number[]> {
  const shapes = new Map<string, number[]>();
  for (const graph of inside(model, whole(model), 7)) {
    for (const input of inside(model, graph, 11)) {
      const sizes: number[] = [];
      for (const type of inside(model, input, 2))
        for (const tensor of inside(model, type, 1))
          for (const shape of inside(model, tensor, 2))
            for (const size of inside(model, shape, 1)) sizes.push(first(inside(model, size, 1))?.value ?? 0);
      shapes.set(text(model, first(inside(model, input, 1))), sizes);
    }
  }
  return shapes;
}

/** Return the file with the values of some initialisers replaced. */
export function withWeights(model: Bytes, weights: ReadonlyMap<string, Uint8Array>): Bytes {
  const content = model.slice();
  const left = new Set(weights.keys());
  for (const graph of inside(model, whole(model), 7)) {
    for (const tensor of inside(model, graph, 5)) {
      const name = text(model, first(inside(model, tensor, 8)));
      const value = weights.get(name);
      const place = value && first(inside(model, tensor, 9));
      if (!value || !place) continue;
      if (place.end - place.begin !== value.length) throw new TunerError(`${name} has another size: export again`);
      content.set(value, place.begin);
      left.delete(name);
    }
  }
  for (const name of left) throw new TunerError(`the model has no values of ${name}: export again`);
  return content;
}

/**
 * Return the file with other tensors of float32 in the place of some initialisers, whose shapes may differ, and with
 * another last size of an output. What it notes of values in between is left out: that may name the old sizes.
 */
export function withTensors(model: Bytes, tensors: ReadonlyMap<string, Tensor>, output: string, size: number): Bytes {
  const left = new Set(tensors.keys());
  const graph = (part: Field): Uint8Array | undefined => {
    const name = (): string => text(model, first(inside(model, part, part.number === INITIALISER ? 8 : 1)));
    if (part.number === VALUE_INFO) return new Uint8Array();
    if (part.number === OUTPUT && name() === output) return resized(model, part, [2, 1, 2], size);
    if (part.number !== INITIALISER || !left.delete(name())) return undefined;
    const { shape, data } = tensors.get(name())!;
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return message(INITIALISER, joined(...shape.map((extent) => integer(1, extent)), integer(2, FLOAT32), message(8, encode(name())), message(9, bytes)));
  };
  const changed = rewritten(model, whole(model), (part) => (part.number === GRAPH ? message(GRAPH, rewritten(model, part, graph)) : undefined));
  for (const name of left) throw new TunerError(`the model has no values of ${name}: export again`);
  return changed;
}

/** Return a part of a file, each field as a function gives it, or as it is. */
function rewritten(model: Uint8Array, of: { begin: number; end: number }, change: (field: Field) => Uint8Array | undefined): Bytes {
  return joined(...[...fields(model, of.begin, of.end)].map((field) => change(field) ?? model.subarray(field.from, field.end)));
}

/** Return a value of a graph with another last size; `path` leads to its shape. */
function resized(model: Uint8Array, of: Field, path: readonly number[], size: number): Uint8Array {
  const parts = [...fields(model, of.begin, of.end)];
  const wanted = path.length ? parts.find(({ number }) => number === path[0]) : parts.findLast(({ number }) => number === 1);
  const change = (field: Field): Uint8Array | undefined => {
    if (field !== wanted) return undefined;
    return path.length ? resized(model, field, path.slice(1), size) : message(1, integer(1, size));
  };
  return message(of.number, joined(...parts.map((field) => change(field) ?? model.subarray(field.from, field.end))));
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
