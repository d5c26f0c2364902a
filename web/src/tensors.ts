/** Arrays, and files of them (safetensors). */

import { type Bytes, decode, encode, product, roundEven, TunerError, viewOf } from "./bytes.ts";

const TYPES = {
  F32: Float32Array,
  F64: Float64Array,
  I64: BigInt64Array,
  I32: Int32Array,
  I16: Int16Array,
  U8: Uint8Array,
  U16: Uint16Array,
  F16: Uint16Array, // as its bits
  BOOL: Uint8Array,
} as const;

export type TypeName = keyof typeof TYPES;
export type Data = InstanceType<(typeof TYPES)[TypeName]>;

export interface Tensor {
  readonly type: TypeName;
  readonly shape: readonly number[];
  readonly data: Data;
}

export interface TensorFile {
  readonly tensors: Map<string, Tensor>;
  readonly metadata: Readonly<Record<string, string>>;
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Read a file of tensors. */
export function readTensors(content: Bytes): TensorFile {
  const length = Number(viewOf(content).getBigUint64(0, true));
  const header = JSON.parse(decode(content.subarray(8, 8 + length))) as Record<string, Entry>;
  const tensors = new Map<string, Tensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const type = entry.dtype as TypeName;
    const [begin, end] = entry.data_offsets.map((offset) => offset + 8 + length) as [number, number];
    if (!(type in TYPES) || end > content.length) throw new TunerError(`${name} has type ${type}: export again`);
    const Type = TYPES[type];
    const data = new Type(content.slice(begin, end).buffer); // copied: a view must begin at a multiple of its size
    if (data.length !== product(entry.shape)) throw new TunerError(`${name} is not of its shape: export again`);
    tensors.set(name, { type, shape: entry.shape, data });
  }
  return { tensors, metadata: (header["__metadata__"] ?? {}) as unknown as Record<string, string> };
}

/** Write a file of tensors. */
export function writeTensors({ tensors, metadata }: TensorFile): Bytes {
  const header: Record<string, unknown> = Object.keys(metadata).length ? { __metadata__: metadata } : {};
  const order = [...tensors].sort(
    ([a, one], [b, two]) => two.data.BYTES_PER_ELEMENT - one.data.BYTES_PER_ELEMENT || (a < b ? -1 : 1),
  );
  let size = 0;
  for (const [name, { type, shape, data }] of order) {
    header[name] = { dtype: type, shape, data_offsets: [size, size + data.byteLength] };
    size += data.byteLength;
  }
  const text = encode(JSON.stringify(header));
  const length = Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(8 + length + size);
  viewOf(out).setBigUint64(0, BigInt(length), true);
  out.fill(32, 8, 8 + length).set(text, 8);
  let at = 8 + length;
  for (const [, { data }] of order) {
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return out;
}

/** Return a tensor of a file. */
export function tensorOf(file: TensorFile, name: string): Tensor {
  const tensor = file.tensors.get(name);
  if (!tensor) throw new TunerError(`the bundle lacks the tensor ${name}: export again`);
  return tensor;
}

/** Return numbers as float32 or float64 have them. */
export function floats(tensor: Tensor): Float32Array | Float64Array {
  const { data } = tensor;
  if (data instanceof Float32Array || data instanceof Float64Array) return data;
  if (tensor.type === "F16") return Float32Array.from(data as Uint16Array, half);
  return Float64Array.from(data as ArrayLike<number | bigint>, Number);
}

/** Return the number that 16 bits stand for. */
export function half(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}

const FLOAT = new Float32Array(1);
const BITS = new Int32Array(FLOAT.buffer);

/** Return the 16 bits of a number, clamped to their range, halves to the even one. */
export function toHalf(value: number): number {
  FLOAT[0] = value;
  const sign = (BITS[0]! >> 16) & 0x8000;
  const size = BITS[0]! & 0x7fffffff;
  if (size < 113 << 23) return sign | roundEven(Math.abs(FLOAT[0]!) * 2 ** 24); // below the smallest normal number
  return sign | Math.min((size + 0xfff + ((size >> 13) & 1) - (112 << 23)) >> 13, 0x7bff);
}

/** Return the 16 bits of each number. */
export function toHalves(values: Float32Array): Uint16Array<ArrayBuffer> {
  const out = new Uint16Array(values.length);
  for (let i = 0; i < out.length; i++) out[i] = toHalf(values[i]!);
  return out;
}
