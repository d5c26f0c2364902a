/** Random numbers of a seed, and what training draws by them: the order of samples, and random changes of maps. */

export type Random = () => number;

/** Return numbers in [0, 1), the same for the same seed (mulberry32). */
export function randomOf(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return rows in a random order. */
export function shuffled(rows: readonly number[], random: Random): number[] {
  const order = [...rows];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}

/** Return rows of all classes in turns, as many as there are samples. */
export function balanced(labels: readonly number[], random: Random): number[] {
  const classes = [...new Set(labels)].map((label) => [...labels.keys()].filter((row) => labels[row] === label));
  const rounds = Math.ceil(labels.length / classes.length);
  const turns = classes.map((rows) => {
    const drawn: number[] = [];
    while (drawn.length < rounds) drawn.push(...shuffled(rows, random));
    return drawn;
  });
  return Array.from({ length: rounds }, (_, turn) => shuffled(turns.map((rows) => rows[turn]!), random))
    .flat()
    .slice(0, labels.length);
}

const OPERATIONS = ["crop", "flip", "shift"];

/** Change stored maps [n, C, H, W] at random, each sample in its own way; anything else stays as it is. */
export function augmented(
  maps: Float32Array,
  shape: readonly number[],
  operations: readonly string[],
  strength: number,
  random: Random,
): Float32Array {
  const ops = operations.filter((name) => OPERATIONS.includes(name));
  const [channels, height, width] = shape as [number, number, number];
  if (!strength || !ops.length || shape.length !== 3 || height * width === 1) return maps;
  const out = new Float32Array(maps.length);
  const size = channels * height * width;
  for (let at = 0; at < maps.length; at += size) {
    let [rows, columns] = [identity(height), identity(width)];
    if (ops.includes("crop")) {
      const area = 1 - 0.5 * strength * random();
      const aspect = Math.exp(Math.log(4 / 3) * strength * (2 * random() - 1));
      rows = section(Math.min(1, Math.sqrt(area / aspect)), height, random);
      columns = section(Math.min(1, Math.sqrt(area * aspect)), width, random);
    }
    if (ops.includes("flip") && random() < 0.5) columns.reverse();
    if (ops.includes("shift")) {
      rows = shift(rows, strength, random);
      columns = shift(columns, strength, random);
    }
    for (let c = 0; c < channels; c++) {
      const map = maps.subarray(at + c * height * width);
      rows.forEach((row, y) =>
        columns.forEach((column, x) => {
          out[at + (c * height + y) * width + x] = map[row * width + column]!;
        }),
      );
    }
  }
  return out;
}

/** Of each position of an axis: where it comes from. */
type Axis = number[];

const identity = (size: number): Axis => Array.from({ length: size }, (_, i) => i);

function section(share: number, size: number, random: Random): Axis {
  const start = random() * (1 - share) * size;
  return Array.from({ length: size }, (_, i) => Math.floor(start + (i + 0.5) * share));
}

function shift(axis: Axis, strength: number, random: Random): Axis {
  const reach = Math.floor(0.1 * strength * axis.length + 0.5);
  const by = Math.floor(random() * (2 * reach + 1)) - reach;
  return axis.map((_, i) => axis[Math.min(axis.length - 1, Math.max(0, i - by))]!);
}
