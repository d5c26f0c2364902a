/** A new label: the head gets one more row, which nothing is learned of yet, and a tail's step and files one more label. */

import { type Bundle, type BundleInfo, SOLVED, unextendable } from "./bundle.ts";
import { type Bytes, digest, product, TunerError } from "./bytes.ts";
import { countedNodes, nodesOf, resized } from "./resize.ts";
import { SEPARATOR } from "./target.ts";
import { floats, type Tensor, type TensorFile, tensorOf, writeTensors } from "./tensors.ts";

/** Bias of a row that nothing was learned of: no sample gets its label. */
const NEVER = -1e4;
const LONGEST = 100;
const [MODEL, WEIGHTS, TAIL, STEP, HEAD] = ["model.onnx", "weights.safetensors", "train/tail.onnx", "train/step.onnx", "train/solved.safetensors"] as const;
/** What the inputs of a step begin with, before the name of a weight: nothing, or a state of its optimiser. */
const STATES = ["", "mean.", "square.", "momentum."];

/** Return a new label as it is written, or say why it cannot be one. */
export async function newLabel(text: string, bundle: Bundle): Promise<string> {
  const refusal = unextendable(bundle.info);
  if (refusal) throw new TunerError(`the bundle has no label ${text}. ${refusal}`);
  const label = text.trim().normalize("NFC");
  if (!label || label.length > LONGEST || label.includes(SEPARATOR) || /\p{C}/u.test(label)) {
    throw new TunerError(`a label must be printable text of at most ${LONGEST} characters, without ${SEPARATOR}: give another name`);
  }
  await headOf(bundle);
  return label;
}

/** Return the names of weight and bias of the head; a tail must end in one linear layer. */
export async function headOf(bundle: Bundle): Promise<readonly string[]> {
  const { labels, train } = bundle.info;
  if (train!.kind === SOLVED) return train!.weights!;
  const last = nodesOf(await bundle.file(TAIL)).find(({ operator, outputs }) => operator === "Gemm" && outputs.includes("logits"));
  const names = last?.inputs.slice(1) ?? [];
  const { tensors } = await bundle.tensors(WEIGHTS);
  const shapes = names.map((name) => tensors.get(name)?.shape);
  if (shapes[0]?.length !== 2 || shapes[1]?.length !== 1 || !shapes.every((shape) => shape?.[0] === labels.length)) {
    throw new TunerError("the tail does not end in one linear layer, and cannot learn a new label: export a trial whose head is solved for");
  }
  return names;
}

/** Return a bundle with more labels, in `bundle.json` and in every file that has them. */
export async function withLabels(bundle: Bundle, added: readonly string[]): Promise<Bundle> {
  const labels = [...bundle.info.labels, ...added];
  const count = labels.length;
  const weights = await bundle.tensors(WEIGHTS);
  const names = await headOf(bundle);
  const tensors = new Map(names.map((name, i) => [`tail.${name}`, grown(weights, name, added.length, i ? NEVER : 0)]));
  const ports = names.flatMap((name) => STATES.flatMap((state) => [`${state}${name}`, `next.${state}${name}`]));
  const axes = new Map<string, 0 | -1>([["logits", -1], ...ports.map((port) => [port, 0] as const)]);
  const files = new Map<string, Bytes>([
    [MODEL, resized(await bundle.file(MODEL), { count, axes, tensors })],
    [WEIGHTS, writeTensors(weights)],
  ]);
  if (bundle.info.train!.kind === SOLVED) {
    const solved = await bundle.tensors(HEAD);
    for (const name of ["given.weight", "given.bias"]) grown(solved, name, added.length, 0);
    files.set(HEAD, writeTensors(solved));
  } else {
    const step = await bundle.file(STEP);
    files.set(STEP, resized(step, { count, axes, counted: countedNodes(step, bundle.info.labels.length) }));
    files.set(TAIL, resized(await bundle.file(TAIL), { count, axes }));
  }
  const hashes = { ...bundle.info.files };
  for (const [name, content] of files) hashes[name] = await digest(content);
  return bundle.with({ ...bundle.info, labels, files: hashes } satisfies BundleInfo, files);
}

/** Give a tensor of a file more rows, all of one value, and return it. */
function grown(file: TensorFile, name: string, more: number, value: number): Tensor {
  const { shape } = tensorOf(file, name);
  const size = product(shape.slice(1));
  const old = floats(tensorOf(file, name));
  const data = new Float32Array(old.length + more * size).fill(value);
  data.set(old);
  const tensor = { type: "F32", shape: [shape[0]! + more, ...shape.slice(1)], data } satisfies Tensor;
  file.tensors.set(name, tensor);
  return tensor;
}
