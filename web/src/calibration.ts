/** When samples leave at exits: temperatures and thresholds, chosen as in Python (`tuner.runtime.infer.calibration`). */

import type { Exits } from "./bundle.ts";
import { argmax } from "./bytes.ts";
import { leastDrop, normalQuantile } from "./gate.ts";
import { confidenceOf } from "./model.ts";
import type { Heads } from "./plan.ts";
import { share, surprise, type Target } from "./target.ts";

const GRID = Array.from({ length: 21 }, (_, step) => Math.round(5 * step) / 100);
const TEMPERATURES = Array.from({ length: 81 }, (_, step) => 0.05 * 200 ** (step / 80));
const SLACK = 1e-12; // of rounding

/** Logits of every exit and of the model's own head to one sample. */
export type Logits = readonly Float32Array[];

/** Accuracy and cost of some thresholds. */
interface Point {
  readonly thresholds: readonly number[];
  readonly accuracy: number;
  readonly cost: number;
  readonly rates: readonly number[];
}

/** Return the exits with thresholds and temperatures chosen anew, by samples that the exits were not trained on. */
export function calibrated(exits: Exits, heads: Heads, samples: readonly Logits[], truths: readonly Target[], loss: string): Exits {
  const count = exits.segments.length - 1;
  const temperatures = exits.segments.map((_, exit) => temperatureOf(samples.map((logits) => logits[exit]!), truths, loss));
  const sure = samples.map((logits) => logits.map((own, exit) => confidenceOf(own, temperatures[exit]!, loss, logits[exit - 1])));
  const right = samples.map((logits, i) => logits.map((own) => share(own, truths[i]!, loss)));
  const rightOf = (thresholds: readonly number[]): number[] => right.map((own, i) => own[leaving(sure[i]!, thresholds)]!);
  const at = (thresholds: readonly number[], costs = exits.shares): Point => {
    const rates = exits.segments.map(() => 0);
    for (const own of sure) rates[leaving(own, thresholds)]! += 1 / samples.length;
    const cost = rates.reduce((sum, rate, exit) => sum + rate * costs[exit]!, 0);
    return { thresholds, accuracy: mean(rightOf(thresholds)), cost, rates };
  };
  const all = (threshold: number): number[] => new Array<number>(count).fill(threshold);
  const sweep = GRID.map((threshold) => at(all(threshold)));
  const best = sweep.reduce((one, point) => (point.accuracy > one.accuracy ? point : one));
  const reference = heads.against === "original" ? sweep.at(-1)! : best;
  const before = rightOf(reference.thresholds);
  let chosen = at(all(reference.thresholds[0]!));
  const consider = (thresholds: readonly number[]): void => {
    const point = at(thresholds);
    if (!(point.cost < chosen.cost)) return;
    if (mostDrop(before, rightOf(thresholds), heads.confidence) <= exits.tolerance + SLACK) chosen = point;
  };
  for (let end = 0; end <= count; end++) for (const threshold of GRID) consider(all(0).fill(threshold, 0, end));
  for (let exit = 0; heads.perExit && exit < count; exit++) {
    for (const threshold of GRID) consider(chosen.thresholds.map((own, at) => (at === exit ? threshold : own)));
  }
  return {
    ...exits,
    thresholds: chosen.thresholds,
    temperatures,
    reference_accuracy: reference.accuracy,
    calibration_samples: samples.length,
    labelled: true,
    front: front(GRID.map((threshold) => at(all(threshold), exits.seconds?.length ? exits.seconds : exits.shares))),
  };
}

/** Return the exit at which a sample leaves: the first that is sure enough, else the last. */
export function leaving(sure: readonly number[], thresholds: readonly number[]): number {
  const exit = thresholds.findIndex((threshold, at) => sure[at]! > threshold);
  return exit < 0 ? thresholds.length : exit;
}

function mean(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** Return the points that no other beats in accuracy and cost, as `bundle.json` has them. */
function front(points: readonly Point[]): NonNullable<Exits["front"]> {
  const best: Point[] = [];
  for (const point of [...points].sort((one, two) => one.cost - two.cost || two.accuracy - one.accuracy)) {
    if (!best.length || point.accuracy > best.at(-1)!.accuracy) best.push(point);
  }
  return best.map(({ thresholds, accuracy, cost }) => ({ threshold: Math.max(...thresholds), accuracy, mean_latency_seconds: cost }));
}

/** Return the temperature with the least negative log-likelihood; 1 of a regression. */
function temperatureOf(logits: readonly Float32Array[], truths: readonly Target[], loss: string): number {
  if (loss === "regression") return 1;
  const losses = TEMPERATURES.map((temperature) => mean(logits.map((row, i) => surprise(Float64Array.from(row, (value) => value / temperature), truths[i]!))));
  return TEMPERATURES[argmax(losses.map((value) => -value))]!;
}

/** Return the upper one-sided bound of a drop of accuracy; see `tuner.runtime.infer.mcnemar.most_drop`. */
function mostDrop(before: readonly number[], after: readonly number[], confidence: number): number {
  const drops = before.map((value, i) => value - after[i]!);
  const count = (which: number): number => drops.filter((value) => value === which).length;
  if (confidence > 0.5 && count(-1) + count(0) + count(1) === drops.length) return -leastDrop(count(-1), count(1), drops.length, confidence);
  const spread = Math.sqrt(mean(drops.map((value) => value ** 2)) - mean(drops) ** 2) / Math.sqrt(drops.length);
  return mean(drops) + (confidence > 0.5 ? normalQuantile(confidence) * spread : 0);
}
