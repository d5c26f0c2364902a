/** A new label for a bundle whose head is solved for: one more row, which nothing is learned of yet. */

import { type Bundle, type BundleInfo, unextendable } from "./bundle.ts";
import { type Bytes, digest, TunerError } from "./bytes.ts";
import { withTensors } from "./onnx.ts";
import { SEPARATOR } from "./target.ts";
import { floats, type Tensor, type TensorFile, tensorOf, writeTensors } from "./tensors.ts";

/** Bias of a row that nothing was learned of: no sample gets its label. */
const NEVER = -1e4;
const LONGEST = 100;

/** Return a new label as it is written, or say why it cannot be one. */
export function newLabel(text: string, info: BundleInfo): string {
  const refusal = unextendable(info);
  if (refusal) throw new TunerError(`the bundle has no label ${text}. ${refusal}`);
  const label = text.trim().normalize("NFC");
  if (!label || label.length > LONGEST || label.includes(SEPARATOR) || /\p{C}/u.test(label)) {
    throw new TunerError(`a label must be printable text of at most ${LONGEST} characters, without ${SEPARATOR}: give another name`);
  }
  return label;
}

/** Return a bundle with more labels, in `bundle.json`, the model, its weights and the head that it is solved from. */
export async function withLabels(bundle: Bundle, added: readonly string[]): Promise<Bundle> {
  const labels = [...bundle.info.labels, ...added];
  const weights = await bundle.tensors("weights.safetensors");
  const solved = await bundle.tensors("train/solved.safetensors");
  const names = bundle.info.train!.weights!;
  const rows = new Map(names.map((name, i) => [`tail.${name}`, grown(weights, name, added.length, i ? NEVER : 0)]));
  for (const name of ["given.weight", "given.bias"]) grown(solved, name, added.length, 0);
  const files = new Map<string, Bytes>([
    ["model.onnx", withTensors(await bundle.file("model.onnx"), rows, "logits", labels.length)],
    ["weights.safetensors", writeTensors(weights)],
    ["train/solved.safetensors", writeTensors(solved)],
  ]);
  const hashes = { ...bundle.info.files };
  for (const [name, content] of files) hashes[name] = await digest(content);
  return bundle.with({ ...bundle.info, labels, files: hashes }, files);
}

/** Give a tensor of a file more rows, all of one value, and return it. */
function grown(file: TensorFile, name: string, more: number, value: number): Tensor {
  const { shape } = tensorOf(file, name);
  const size = shape.slice(1).reduce((a, b) => a * b, 1);
  const old = floats(tensorOf(file, name));
  const data = new Float32Array(old.length + more * size).fill(value);
  data.set(old);
  const tensor = { type: "F32", shape: [shape[0]! + more, ...shape.slice(1)], data } satisfies Tensor;
  file.tensors.set(name, tensor);
  return tensor;
}
