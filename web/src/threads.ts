/** How many threads pay here: measured, as threads wait for each other, and one on a busy core holds up all. */

/** Work that takes about a hundredth of a second, and its rounds: the median counts. */
const WORK = 4_000_000;
const ROUNDS = 5;
/** Largest time of threads that work at once, as a multiple of the time of one that works alone. */
const SLOWEST = 1.4;

/** Compute something for a while; return the seconds that it took. */
export function work(): number {
  const began = performance.now();
  let value = 1;
  for (let i = 0; i < WORK; i++) value = (Math.imul(value, 1_664_525) + 1_013_904_223) | 0;
  return (performance.now() - began) / 1000 + (value ? 0 : 1e-9); // the value is used: else nothing has to be computed
}

/**
 * Return how many threads work at once nearly as fast as one alone, at most `most`.
 *
 * `helpers` opens that many others, each of which does `work` when it is called.
 */
export async function measuredThreads(most: number, helpers: (count: number) => Promise<readonly (() => Promise<unknown>)[]>): Promise<number> {
  if (most < 2) return 1;
  const others = await helpers(most - 1);
  const median = (times: number[]): number => times.sort((one, two) => one - two)[Math.floor(times.length / 2)]!;
  work(); // until it is compiled
  const alone = median(Array.from({ length: ROUNDS }, work));
  for (let threads = most; threads > 1; threads--) {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const began = performance.now();
      const waiting = others.slice(0, threads - 1).map((other) => other());
      work();
      await Promise.all(waiting);
      times.push((performance.now() - began) / 1000);
    }
    if (median(times) <= SLOWEST * alone) return threads;
  }
  return 1;
}
