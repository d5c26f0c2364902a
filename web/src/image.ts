/** Pixels as the model sees them: resize, crop, normalise, to the bit as Pillow and numpy do it in Python. */

import { roundEven, TunerError } from "./bytes.ts";
import type { InputSpec } from "./bundle.ts";

/** Decoded pixels, four bytes each: red, green, blue, and one that is not read. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array | Uint8ClampedArray;
}

const PRECISION = 22;

interface Weights {
  readonly begins: Int32Array;
  readonly counts: Int32Array;
  readonly values: Int32Array;
  readonly most: number;
}

/** Return the sources of each output position of an axis with their weights, whole numbers of 22 bits. */
function weightsOf(source: number, target: number): Weights {
  const ratio = source / target;
  const width = Math.max(1, ratio);
  const most = Math.ceil(width) * 2 + 1;
  const begins = new Int32Array(target);
  const counts = new Int32Array(target);
  const values = new Int32Array(target * most);
  const exact = new Float64Array(most);
  for (let x = 0; x < target; x++) {
    const centre = (x + 0.5) * ratio;
    const begin = Math.max(0, Math.trunc(centre - width + 0.5));
    const count = Math.min(source, Math.trunc(centre + width + 0.5)) - begin;
    let sum = 0;
    for (let i = 0; i < count; i++) {
      exact[i] = Math.max(0, 1 - Math.abs((i + begin - centre + 0.5) * (1 / width)));
      sum += exact[i]!;
    }
    for (let i = 0; i < count; i++) {
      const scaled = (exact[i]! / sum) * 2 ** PRECISION;
      values[x * most + i] = Math.trunc(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
    begins[x] = begin;
    counts[x] = count;
  }
  return { begins, counts, values, most };
}

/** Return width and height of a picture whose shorter side is resized. */
export function resizedSize(width: number, height: number, short: number): [number, number] {
  const scale = short / Math.min(width, height);
  return width <= height
    ? [short, Math.max(short, Math.trunc(height * scale))]
    : [Math.max(short, Math.trunc(width * scale)), short];
}

/** Resize and crop: uint8 [3, size, size]. */
export function fit(pixels: Pixels, spec: InputSpec): Uint8Array<ArrayBuffer> {
  const size = spec.size;
  if (!size) throw new TunerError("the bundle does not take photos");
  const [width, height] = resizedSize(pixels.width, pixels.height, spec.resize ?? size);
  const [left, top] = [roundEven((width - size) / 2), roundEven((height - size) / 2)];
  const across = weightsOf(pixels.width, width);
  const down = weightsOf(pixels.height, height);
  const same = [width === pixels.width, height === pixels.height];
  const firstRow = same[1] ? top : down.begins[top]!;
  const lastRow = same[1] ? top + size : down.begins[top + size - 1]! + down.counts[top + size - 1]!;
  const half = 1 << (PRECISION - 1);
  const rows = new Uint8ClampedArray((lastRow - firstRow) * size * 3);
  for (let y = firstRow; y < lastRow; y++) {
    for (let x = 0; x < size; x++) {
      const to = ((y - firstRow) * size + x) * 3;
      if (same[0]) {
        const from = (y * pixels.width + x + left) * 4;
        for (let c = 0; c < 3; c++) rows[to + c] = pixels.data[from + c]!;
        continue;
      }
      let [red, green, blue] = [half, half, half];
      const count = across.counts[x + left]!;
      let weight = (x + left) * across.most;
      let from = (y * pixels.width + across.begins[x + left]!) * 4;
      for (let i = 0; i < count; i++, from += 4) {
        const value = across.values[weight++]!;
        red += value * pixels.data[from]!;
        green += value * pixels.data[from + 1]!;
        blue += value * pixels.data[from + 2]!;
      }
      rows[to] = red >> PRECISION;
      rows[to + 1] = green >> PRECISION;
      rows[to + 2] = blue >> PRECISION;
    }
  }
  const out = new Uint8Array(3 * size * size);
  for (let y = 0; y < size; y++) {
    const count = same[1] ? 1 : down.counts[y + top]!;
    const begin = (same[1] ? y + top : down.begins[y + top]!) - firstRow;
    for (let i = 0; i < size * 3; i++) {
      let sum = half;
      for (let k = 0; k < count; k++) {
        sum += (same[1] ? 1 << PRECISION : down.values[(y + top) * down.most + k]!) * rows[(begin + k) * size * 3 + i]!;
      }
      const value = sum >> PRECISION;
      out[(i % 3) * size * size + y * size + ((i / 3) | 0)] = value < 0 ? 0 : value > 255 ? 255 : value;
    }
  }
  return out;
}

/** Make samples the model's input: `(x / 255 − mean) / std` for bytes, `(x − mean) / std` for all else. */
export function normalise(sample: Uint8Array | Float32Array, channels: number, spec: InputSpec): Float32Array {
  const out = new Float32Array(sample.length);
  const size = out.length / channels;
  const of = (values: readonly number[], channel: number, none: number): number =>
    values.length ? Math.fround(values[values.length > 1 ? channel : 0]!) : none;
  const table = new Float32Array(256);
  for (let channel = 0; channel < channels; channel++) {
    const [mean, std] = [of(spec.mean, channel, 0), of(spec.std, channel, 1)];
    const scaled = (value: number): number => Math.fround(value - mean) / std;
    const begin = channel * size;
    if (sample instanceof Uint8Array) {
      for (let code = 0; code < 256; code++) table[code] = scaled(Math.fround(code / 255));
      for (let i = begin; i < begin + size; i++) out[i] = table[sample[i]!]!;
    } else for (let i = begin; i < begin + size; i++) out[i] = scaled(sample[i]!);
  }
  return out;
}

/** Decode a photo as the browser can, upright, its colours as they are in the file. */
export async function decodePhoto(file: Blob): Promise<Pixels> {
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw new TunerError("this file is not a photo that the browser can decode: choose another one");
  }
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (!context) throw new TunerError("the browser gives no canvas: close other pages");
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return { width, height, data: context.getImageData(0, 0, width, height).data };
}
