/** What of an ONNX file is read or changed by its bytes: metadata, shapes of inputs, values of weights. */

import { type Bytes, decode, TunerError } from "./bytes.ts";

export interface Field {
  /** Where its key begins. */
  readonly from: number;
  readonly number: number;
  readonly value: number; // of a varint
  readonly begin: number;
  readonly end: number;
}

export function* fields(content: Uint8Array, begin: number, end: number): Generator<Field> {
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

export function* inside(content: Uint8Array, of: { begin: number; end: number }, wanted: number): Generator<Field> {
  for (const field of fields(content, of.begin, of.end)) if (field.number === wanted) yield field;
}

export const text = (content: Uint8Array, field: Field | undefined): string =>
  field ? decode(content.subarray(field.begin, field.end)) : "";
export const whole = (content: Uint8Array): { begin: number; end: number } => ({ begin: 0, end: content.length });
export const first = (found: Iterable<Field>): Field | undefined => [...found][0];

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
