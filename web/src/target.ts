/** What is true of a sample: its label, or, where it may have several, all of them; of a regression its numbers. */

import type { BundleInfo } from "./bundle.ts";
import { argmax, TunerError } from "./bytes.ts";
import type { Tensor } from "./tensors.ts";

/**
 * Row of a label; or, where a sample may have several, a one for each that it has and a zero for every other; of a
 * regression a number for each output, in standard deviations of the targets.
 */
export type Target = number | readonly number[];

/** Stands between the labels or numbers of a sample that has several, in the text that it is kept with. */
export const SEPARATOR = "|";
/** Largest difference of a right answer of a regression, in standard deviations of the targets. */
const TOLERANCE = 0.5;
/** What a right answer of a regression is, in words. */
export const NEAR = `within ${TOLERANCE} standard deviations`;

/** Return the labels that a sample has by its name, or by several: those of the bundle's map, which are more general too. */
export function labelsBy(text: string, { loss, label_map: map = {} }: BundleInfo): string[] {
  if (loss === "regression") return [text];
  const names = loss === "multi-label" ? text.split(SEPARATOR) : [text];
  return [...new Set(names.flatMap((name) => (Object.hasOwn(map, name) ? map[name]! : name)))];
}

/** Return whether a text is a label that a bundle does not have, where a sample has one. */
export function isNew(text: string, info: BundleInfo): boolean {
  return info.loss === "single-label" && labelsBy(text, info).every((label) => !info.labels.includes(label));
}

/** Return the target of a label, or of several; of a regression, of a number for each output. */
export function targetOf(text: string, info: BundleInfo): Target {
  const { labels, loss, targets } = info;
  const multi = loss === "multi-label";
  if (targets) {
    const numbers = text.split(SEPARATOR).map((part) => (part.trim() ? Number(part) : NaN));
    if (numbers.length !== labels.length || !numbers.every(Number.isFinite)) {
      throw new TunerError(`the bundle predicts ${labels.join(", ")}, but a photo has ${text || "nothing"}: give a number for each`);
    }
    return numbers.map((value, i) => Math.fround((value - targets.mean[i]!) / targets.std[i]!));
  }
  const rows = labelsBy(text, info).map((label) => {
    const row = labels.indexOf(label);
    if (row < 0) throw new TunerError(`the bundle has no label ${label}: choose one that it has`);
    return row;
  });
  if (!multi && rows.length !== 1) throw new TunerError(`a photo has one label, but ${text} stands for ${rows.length}: choose another`);
  return multi ? labels.map((_, row) => Number(rows.includes(row))) : rows[0]!;
}

/** Return the targets that a file holds: a row of a label each, or a number for each label. */
export function labelsOf({ data, shape }: Tensor): Target[] {
  const numbers = Array.from(data as ArrayLike<number | bigint>, Number);
  const width = shape[1];
  return width === undefined ? numbers : Array.from({ length: shape[0]! }, (_, i) => numbers.slice(i * width, (i + 1) * width));
}

/** Return whether the most probable label is the sample's, or one of them; of a regression, whether all outputs are near. */
export function isRight(logits: Float32Array, target: Target, loss: string): boolean {
  if (typeof target === "number") return argmax(logits) === target;
  if (loss === "regression") return logits.every((value, i) => Math.abs(value - target[i]!) <= TOLERANCE);
  return target[argmax(logits)]! > 0;
}

/** Return the class of each sample, to draw by; with several labels a sample, its rarest one. */
export function classesOf(targets: readonly Target[]): number[] {
  const counts = new Map<number, number>();
  const has = (target: Target): number[] => (typeof target === "number" ? [target] : [...target.keys()].filter((row) => target[row]! > 0));
  for (const target of targets) for (const row of has(target)) counts.set(row, (counts.get(row) ?? 0) + 1);
  return targets.map((target) => has(target).reduce((best, row) => (best < 0 || counts.get(row)! < counts.get(best)! ? row : best), -1));
}

/** Return how far an answer is right: the share of the labels, or of the outputs, that are. */
export function share(logits: Float32Array, target: Target, loss: string): number {
  if (typeof target === "number") return Number(argmax(logits) === target);
  const right = loss === "regression" ? (value: number, i: number) => Math.abs(value - target[i]!) <= TOLERANCE : (value: number, i: number) => value > 0 === target[i]! > 0;
  return [...logits].filter(right).length / logits.length;
}

/**
 * Return the share of right answers; where a sample may have several labels, the mean over labels of the AUC; of a
 * regression the mean over outputs of R², at least 0.
 */
export function scoreOf(logits: readonly Float32Array[], targets: readonly Target[], best: readonly boolean[], loss: string): number {
  if (typeof targets[0] === "number") return best.filter(Boolean).length / best.length;
  if (loss === "regression") return explained(logits, targets as readonly (readonly number[])[]);
  const areas: number[] = [];
  for (let label = 0; label < logits[0]!.length; label++) {
    const order = [...logits.keys()].sort((one, two) => logits[one]![label]! - logits[two]![label]!);
    let [ranks, hits] = [0, 0];
    for (let at = 0, end; at < order.length; at = end) {
      const value = logits[order[at]!]![label];
      for (end = at; end < order.length && logits[order[end]!]![label] === value; end++);
      for (let i = at; i < end; i++) {
        if ((targets[order[i]!] as readonly number[])[label]! > 0) (hits++, (ranks += (at + 1 + end) / 2));
      }
    }
    const others = order.length - hits;
    if (hits && others) areas.push((ranks - (hits * (hits + 1)) / 2) / (hits * others));
  }
  return areas.length ? areas.reduce((a, b) => a + b, 0) / areas.length : 0.5;
}

function explained(logits: readonly Float32Array[], targets: readonly (readonly number[])[]): number {
  const shares: number[] = [];
  for (let output = 0; output < logits[0]!.length; output++) {
    const mean = targets.reduce((sum, target) => sum + target[output]!, 0) / targets.length;
    const [rest, total] = [0, 1].map((which) => {
      return targets.reduce((sum, target, i) => sum + (target[output]! - (which ? mean : logits[i]![output]!)) ** 2, 0);
    }) as [number, number];
    if (total > 0) shares.push(1 - rest / total);
  }
  return shares.length ? Math.max(0, shares.reduce((a, b) => a + b, 0) / shares.length) : 0;
}

/** Return the negative log-likelihood of a sample's label, or of its labels' presence and absence, summed. */
export function surprise(logits: Float64Array, target: Target): number {
  if (typeof target === "number") {
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    return Math.log(logits.reduce((sum, value) => sum + Math.exp(value - most), 0)) + most - logits[target]!;
  }
  return logits.reduce((sum, value, o) => sum + Math.log1p(Math.exp(-Math.abs(value))) + Math.max(0, target[o]! > 0 ? -value : value), 0);
}
