/** Bytes: hashes, text, views. */

/** What the user can act on, in one line: rule, value, way out. */
export class TunerError extends Error {}

/** Bytes on an ordinary buffer, which crosses to workers and into storage. */
export type Bytes = Uint8Array<ArrayBuffer>;

const K = new Uint32Array(64);
const START = new Uint32Array(8);
for (let prime = 2, found = 0; found < 64; prime++) {
  let divisor = 2;
  while (divisor * divisor <= prime && prime % divisor) divisor++;
  if (divisor * divisor <= prime) continue;
  if (found < 8) START[found] = (Math.sqrt(prime) % 1) * 2 ** 32;
  K[found++] = (Math.cbrt(prime) % 1) * 2 ** 32;
}

/** Return a SHA-256 in hex. */
export function sha256(content: Uint8Array): string {
  const state = START.slice();
  const words = new Uint32Array(64);
  const rest = content.length % 64;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(content.subarray(content.length - rest));
  tail[rest] = 128;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(content.length / 2 ** 29));
  view.setUint32(tail.length - 4, (content.length << 3) >>> 0);
  for (let at = 0; at < content.length - rest; at += 64) block(state, words, content, at);
  for (let at = 0; at < tail.length; at += 64) block(state, words, tail, at);
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}

function block(state: Uint32Array, w: Uint32Array, bytes: Uint8Array, at: number): void {
  for (let i = 0; i < 16; i++, at += 4) {
    w[i] = (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
  }
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15]!;
    const y = w[i - 2]!;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + w[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] = state[i]! + value));
}

const CRC = new Uint32Array(256).map((_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

/** Return a SHA-256 in hex; by the browser, where the page may use its hashes: others than those of HTTPS and localhost may not. */
export async function digest(content: Bytes): Promise<string> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  if (!subtle) return sha256(content);
  return Array.from(new Uint8Array(await subtle.digest("SHA-256", content)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a CRC-32, as zip files have it. */
export function crc32(content: Uint8Array): number {
  let crc = -1;
  for (let i = 0; i < content.length; i++) crc = CRC[(crc ^ content[i]!) & 255]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

export const encode = (text: string): Bytes => new TextEncoder().encode(text);
export const decode = (content: Uint8Array): string => new TextDecoder("utf-8", { fatal: true }).decode(content);
export const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
export const product = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Return the rounded number, halves to the even one, as numpy and Python do. */
export function roundEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest < 0.5 || (rest === 0.5 && floor % 2 === 0) ? floor : floor + 1;
}

export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

/** Return contents, one after the other. */
export function joined(...parts: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) (whole.set(part, at), (at += part.length));
  return whole;
}
