/** The number by which a sample of the user is known again, in Python too: the first bits of its BLAKE2b of 128 bits. */

// words of 64 bits are two of 32, the lower one first
const START = Uint32Array.of(
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
);
/** Order of the words of a block in each round; the last two rounds have that of the first two. */
const ORDER = Uint8Array.from(
  "0123456789abcdef" + "ea489fd61c02b753" + "b8c052fdae367194" + "7931dcbe265a40f8" + "905724afe1bc683d" +
    "2c6a0b834d75fe19" + "c51fed4a0763928b" + "db7ec13950f4862a" + "6fe9b308c2d714a5" + "a2847615fb9e3cd0",
  (digit) => 2 * parseInt(digit, 16),
);
/** Where the words of a mixture are: columns, then diagonals. */
const PLACES = Uint8Array.from("048c" + "159d" + "26ae" + "37bf" + "05af" + "16bc" + "278d" + "349e", (digit) => 2 * parseInt(digit, 16));
const [BLOCK, BYTES] = [128, 16];
const v = new Uint32Array(32);

function add(to: number, low: number, high: number): void {
  const sum = v[to]! + low;
  v[to + 1] = v[to + 1]! + high + (sum > 0xffffffff ? 1 : 0);
  v[to] = sum;
}

/** Mix one word into another, and turn it to the right by so many bits. */
function turn(to: number, from: number, bits: number): void {
  const [low, high] = [v[to]! ^ v[from]!, v[to + 1]! ^ v[from + 1]!];
  const one = bits < 32 ? low : high;
  const two = bits < 32 ? high : low;
  const by = bits % 32;
  v[to] = by ? (one >>> by) | (two << (32 - by)) : one;
  v[to + 1] = by ? (two >>> by) | (one << (32 - by)) : two;
}

function mix(state: Uint32Array, m: Uint32Array, read: number, last: boolean): void {
  v.set(state);
  v.set(START, 16);
  v[24] = v[24]! ^ read;
  v[25] = v[25]! ^ Math.floor(read / 2 ** 32);
  if (last) (v[28] = ~v[28]!), (v[29] = ~v[29]!);
  for (let round = 0; round < 12; round++) {
    for (let i = 0, at = 16 * (round % 10); i < PLACES.length; i += 4) {
      const [a, b, c, d] = [PLACES[i]!, PLACES[i + 1]!, PLACES[i + 2]!, PLACES[i + 3]!];
      for (let half = 0; half < 2; half++) {
        const word = ORDER[at++]!;
        add(a, v[b]!, v[b + 1]!);
        add(a, m[word]!, m[word + 1]!);
        turn(d, a, half ? 16 : 32);
        add(c, v[d]!, v[d + 1]!);
        turn(b, c, half ? 63 : 24);
      }
    }
  }
  for (let i = 0; i < 16; i++) state[i] = state[i]! ^ v[i]! ^ v[i + 16]!;
}

/** Return the mark of a sample as it is kept: decoded, and not normalised. */
export function markOf(sample: Uint8Array | Float32Array): number {
  const size = sample.byteLength;
  const content = new Uint8Array(BLOCK * Math.max(1, Math.ceil(size / BLOCK)));
  content.set(new Uint8Array(sample.buffer, sample.byteOffset, size));
  const words = new Uint32Array(content.buffer);
  const state = START.slice();
  state[0] = state[0]! ^ 0x01010000 ^ BYTES;
  for (let at = 0; at < content.length; at += BLOCK) {
    const last = at + BLOCK === content.length;
    mix(state, words.subarray(at / 4, (at + BLOCK) / 4), last ? size : at + BLOCK, last);
  }
  return new DataView(state.buffer).getUint32(0); // its first four bytes, as they are written
}
