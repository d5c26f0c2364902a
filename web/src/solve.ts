/**
 * The union head: the given head for what it knows, a ridge head for the user's classes, and a gate between the two,
 * weighed by likelihood and folded into one linear layer; or a joint ridge head of both (`tuner.ridge.union` in Python).
 *
 * A ridge head is solved in its dual form: of n samples, (K + λI) α = T with K the products of the centred samples. Its
 * residuals are λα, and its leverages follow from the inverse's diagonal.
 */

import { roundEven, TunerError } from "./bytes.ts";
import { surprise, type Target } from "./target.ts";

export interface LinearHead {
  /** [outputs, features], row by row. */
  readonly weight: Float64Array;
  readonly bias: Float64Array;
}

export interface Settings {
  readonly ridge: number;
  readonly gate_ridge: number;
  readonly local_weight: number;
  readonly scores: string;
  readonly gate: string;
}

/** Samples of one domain: features row by row, and labels; all of one label each, or all of several. */
export interface Samples {
  readonly features: readonly Float64Array[];
  readonly labels: readonly Target[];
}

/** Most samples of a domain that the numbers are fitted on; and the same in labels, where a sample may have several. */
const MOST_FITTED = 2000;
const MOST_CHOICES = 200_000;
const HARD = 1e4;

/** A head, and its logits of each local and each known sample by a head without that sample. */
export interface Solution {
  readonly head: LinearHead;
  readonly left: readonly Float64Array[];
  readonly knownLeft: () => Float64Array[];
  /** Factor of the given head. */
  readonly factor: number;
}

/** Solve for a head. */
export function unionHead(given: LinearHead, local: Samples, known: Samples, settings: Settings): Solution {
  const outputs = given.bias.length;
  const count = local.labels.length;
  if (!count) throw new TunerError("there is nothing to solve from: add samples and their labels first");
  const multi = typeof local.labels[0] !== "number";
  const counts = Float64Array.from({ length: outputs }, (_, label) => local.labels.reduce<number>((sum, target) => sum + has(target, label), 0));
  const joint = settings.scores === "joint";
  const classes = [...counts.keys()].filter((label) => counts[label]! > 0 || (joint && known.labels.some((target) => has(target, label))));
  const [scores, left] = joint ? jointly(local, known, classes, settings) : scored(local, classes, settings);
  const gate = joint ? undefined : gated(local, known, settings);
  const one = Float64Array.from(classes, (label) => Number(counts[label]! > 0)); // a class, by whether it is local
  const most = multi ? Math.min(MOST_FITTED, Math.floor(MOST_CHOICES / outputs)) : MOST_FITTED;
  const own = spaced(count, most);
  const others = spaced(known.labels.length, most);
  const rows = [...own.map((i) => local.features[i]!), ...others.map((i) => known.features[i]!)];
  const on = [...own.map((i) => left[i]!), ...others.map((i) => left[count + i] ?? apply(scores, known.features[i]!))];
  const gates = [...own.map((i) => gate?.left[i] ?? 0), ...others.map((i) => gate?.left[count + i] ?? 0)];
  const labels = [...own.map((i) => local.labels[i]!), ...others.map((i) => known.labels[i]!)];
  const old = rows.map((row) => apply(given, row));
  const numbers = [1, 1, settings.gate === "hard" ? HARD : 0, 0];
  const fitted = !known.labels.length ? [0, 1] : !gate ? [0, 1, 3] : settings.gate === "hard" ? [0, 1] : [0, 1, 2, 3];
  const found = mixture({
    first: old,
    narrow: fitted.slice(1).map((which) =>
      rows.map((_, i) => (which === 1 ? on[i]! : which === 2 ? Float64Array.from(classes, () => gates[i]!) : one)),
    ),
    offset: rows.map((_, i) => Float64Array.from(classes, () => numbers[2]! * gates[i]!)),
    classes,
    labels,
    share: [...own.map(() => settings.local_weight / own.length), ...others.map(() => 1 / others.length)],
    start: fitted.map((which) => numbers[which]!),
  });
  fitted.forEach((which, i) => (numbers[which] = found[i]!));
  const [t, s, k, c] = numbers as [number, number, number, number];
  const features = given.weight.length / outputs;
  const weight = given.weight.map((value) => t * value);
  const bias = given.bias.map((value) => t * value);
  classes.forEach((label, at) => {
    for (let f = 0; f < features; f++) {
      const change = s * scores.weight[at * features + f]! + (gate ? k * gate.head.weight[f]! : 0);
      weight[label * features + f] = weight[label * features + f]! + change;
    }
    bias[label] = bias[label]! + s * scores.bias[at]! + c * one[at]! + (gate ? k * gate.head.bias[0]! : 0);
  });
  const leftOut = (row: Float64Array, i: number): Float64Array => {
    const logits = (old.length === count + known.labels.length ? old[i]! : apply(given, row)).map((value) => t * value);
    const own = left[i] ?? apply(scores, row);
    classes.forEach((label, at) => (logits[label] = logits[label]! + s * own[at]! + one[at]! * (c + (gate ? k * gate.left[i]! : 0))));
    return logits;
  };
  return { head: { weight, bias }, left: local.features.map(leftOut), knownLeft: () => known.features.map((row, i) => leftOut(row, count + i)), factor: t };
}

/** Return the scores of a sample: W x + b. */
export function apply(head: LinearHead, row: ArrayLike<number>): Float64Array {
  const { weight, bias } = head;
  const size = row.length;
  return bias.map((sum, output) => {
    for (let f = 0, at = output * size; f < size; f++) sum += weight[at + f]! * row[f]!;
    return sum;
  });
}

/** Return a one where a sample has a label, else a zero. */
function has(target: Target, label: number): number {
  return typeof target === "number" ? Number(target === label) : target[label]!;
}

/** Return the numbers of at most so many rows at equal distances. */
export function spaced(count: number, most: number): number[] {
  const step = Math.ceil(count / most) || 1;
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step);
}

/** Return the head of the local classes, and its scores of each sample without that sample. */
function scored(local: Samples, classes: readonly number[], settings: Settings): [LinearHead, Float64Array[]] {
  const weights = rowWeights(local.labels);
  if (settings.scores === "means") return classMeans(local, classes, weights);
  const targets = local.labels.map((target) => Float64Array.from(classes, (label) => has(target, label)));
  const ridge = ridgeHead(local.features, targets, weights, settings.ridge);
  if (settings.scores !== "discriminant") return [ridge.head, ridge.left];
  return discriminant(ridge, local.labels.map((label) => classes.indexOf(label as number)), weights, classes.length);
}

/** Return the ridge head of the classes of both domains, and its scores of each sample without that sample. */
function jointly(local: Samples, known: Samples, classes: readonly number[], settings: Settings): [LinearHead, Float64Array[]] {
  const labels = [...local.labels, ...known.labels];
  const targets = labels.map((target) => Float64Array.from(classes, (label) => has(target, label)));
  const { head, left } = ridgeHead([...local.features, ...known.features], targets, bothWeights(local, known, settings), settings.ridge);
  return [head, left];
}

/** Return what each sample counts, so that its class counts as much as any other, in 64ths; with several labels, one. */
function rowWeights(labels: readonly Target[]): number[] {
  const counts = new Map<Target, number>();
  if (typeof labels[0] !== "number") return labels.map(() => 1);
  labels.forEach((label) => counts.set(label, (counts.get(label) ?? 0) + 1));
  return labels.map((label) => Math.max(roundEven((64 * (labels.length / counts.size)) / counts.get(label)!), 1) / 64);
}

/** A ridge head with its scores of its samples; these without the sample; and their leverages. */
interface Ridge {
  readonly head: LinearHead;
  readonly scores: readonly Float64Array[];
  readonly left: Float64Array[];
  readonly leverages: readonly number[];
}

/** The discriminant of a shared covariance, as a change of a ridge head (`tuner.ridge.discriminant`). */
function discriminant(ridge: Ridge, own: readonly number[], weights: readonly number[], k: number): [LinearHead, Float64Array[]] {
  const all = [...Array(k).keys()];
  const sizes = new Float64Array(k);
  own.forEach((label, i) => (sizes[label] = sizes[label]! + weights[i]!));
  const total = sizes.reduce((a, b) => a + b, 0);
  const at = ridge.scores.map((row) => row.map((value, c) => (value - sizes[c]! / total) / sizes[c]!));
  const means = all.map(() => new Float64Array(k));
  at.forEach((row, i) => {
    const mean = means[own[i]!]!;
    row.forEach((value, c) => (mean[c] = mean[c]! + (weights[i]! / sizes[own[i]!]!) * value));
  });
  const turn = inverted(means.map((row, a) => row.map((value, c) => Number(a === c) - sizes[a]! * value)));
  const turned = (row: Float64Array): Float64Array => Float64Array.from(all, (c) => row.reduce((sum, value, a) => sum + value * turn[a]![c]!, 0));
  const lengths = means.map((row, c) => turned(row)[c]!);
  const size = ridge.head.weight.length / k;
  const weight = new Float64Array(k * size);
  for (let f = 0; f < size; f++) {
    turned(Float64Array.from(all, (c) => ridge.head.weight[c * size + f]! / sizes[c]!)).forEach((value, c) => (weight[c * size + f] = value));
  }
  const bias = turned(ridge.head.bias.map((value, c) => (value - sizes[c]! / total) / sizes[c]!)).map((value, c) => value - lengths[c]! / 2);
  const left = at.map((row, i) => {
    const label = own[i]!;
    const mean = means[label]!;
    const apart = row.map((value, c) => value - mean[c]!);
    const [on, off] = [turned(row), turned(apart)];
    let length = ridge.leverages[i]! - 1 / total - 2 * row[label]! + mean[label]!;
    length += apart.reduce((sum, value, c) => sum + off[c]! * sizes[c]! * value, 0);
    const count = sizes[label]! / weights[i]!;
    const share = 1 / Math.max(count - 1, 1);
    const grown = weights[i]! * (1 + share);
    const factor = grown / Math.max(1 - grown * length, 1e-9);
    const whole = length + off[label]!;
    const squares = Float64Array.from(lengths);
    squares[label] = squares[label]! + share * (share * length - 2 * off[label]!);
    on[label] = on[label]! - share * whole;
    off[label] = off[label]! - share * length;
    const scores = on.map((value, c) => value + factor * off[c]! * whole - (squares[c]! + factor * off[c]! ** 2) / 2);
    if (count <= 1) scores[label] = 0;
    return scores;
  });
  return [{ weight, bias }, left];
}

/** Return the inverse of a matrix, by Gauss and Jordan with row pivots. */
function inverted(matrix: readonly Float64Array[]): Float64Array[] {
  const k = matrix.length;
  const rows = matrix.map((row, i) => Float64Array.from({ length: 2 * k }, (_, c) => (c < k ? row[c]! : Number(c - k === i))));
  for (let i = 0; i < k; i++) {
    let pivot = i;
    for (let r = i + 1; r < k; r++) if (Math.abs(rows[r]![i]!) > Math.abs(rows[pivot]![i]!)) pivot = r;
    [rows[i], rows[pivot]] = [rows[pivot]!, rows[i]!];
    const own = (rows[i] = rows[i]!.map((value) => value / rows[i]![i]!));
    rows.forEach((row, r) => {
      if (r !== i) rows[r] = row.map((value, c) => value - row[i]! * own[c]!);
    });
  }
  return rows.map((row) => row.subarray(k));
}

function gated(
  local: Samples,
  known: Samples,
  settings: Settings,
): { head: LinearHead; left: readonly number[] } | undefined {
  if (!known.labels.length || settings.gate === "none") return undefined;
  const weights = bothWeights(local, known, settings);
  const targets = weights.map((_, i) => Float64Array.of(i < local.labels.length ? 1 : -1));
  const { head, left } = ridgeHead([...local.features, ...known.features], targets, weights, settings.gate_ridge);
  return { head, left: left.map((values) => values[0]!) };
}

/** Return what each sample of both domains counts: in all, local ones `local_weight` times what the known ones do. */
function bothWeights(local: Samples, known: Samples, settings: Settings): number[] {
  if (!known.labels.length) return rowWeights(local.labels);
  const total = local.labels.length + known.labels.length;
  const share = settings.local_weight / (1 + settings.local_weight);
  const scaled = (labels: readonly Target[], own: number): number[] => {
    const each = rowWeights(labels);
    const sum = each.reduce((a, b) => a + b, 0);
    return each.map((weight) => (weight * own * total) / sum);
  };
  return [...scaled(local.labels, share), ...scaled(known.labels, 1 - share)];
}

/** Minimise Σ w ‖W x + b − t‖² + λ ‖W‖², with λ of `ridge` samples; and each sample's scores without it. */
function ridgeHead(
  rows: readonly Float64Array[],
  targets: readonly Float64Array[],
  weights: readonly number[],
  ridge: number,
): Ridge {
  const [n, size, outputs] = [rows.length, rows[0]!.length, targets[0]!.length];
  const count = weights.reduce((a, b) => a + b, 0);
  const mean = weighted(rows, weights, count);
  const target = weighted(targets, weights, count);
  const roots = weights.map(Math.sqrt);
  const centred = rows.map((row, i) => row.map((value, f) => (value - mean[f]!) * roots[i]!));
  const goals = targets.map((row, i) => row.map((value, o) => (value - target[o]!) * roots[i]!));
  const kernel = new Float64Array(n * n);
  let spread = 0;
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) kernel[i * n + j] = dot(centred[i]!, centred[j]!);
    spread += kernel[i * n + i]! / count / size;
  }
  const lambda = ridge * (spread || 1);
  for (let i = 0; i < n; i++) kernel[i * n + i] = kernel[i * n + i]! + lambda;
  const [alpha, inverse] = solved(kernel, n, goals);
  const weight = new Float64Array(outputs * size);
  alpha.forEach((row, i) => {
    for (let o = 0; o < outputs; o++) {
      const factor = row[o]!;
      if (factor) for (let f = 0; f < size; f++) weight[o * size + f] = weight[o * size + f]! + factor * centred[i]![f]!;
    }
  });
  const bias = target.map((value, o) => value - dot(weight.subarray(o * size, (o + 1) * size), mean));
  const left = targets.map((row, i) => {
    const rest = Math.max(lambda * inverse[i]! - weights[i]! / count, 1e-9);
    return row.map((value, o) => value - (lambda * alpha[i]![o]!) / roots[i]! / rest);
  });
  const scores = targets.map((row, i) => row.map((value, o) => value - (lambda * alpha[i]![o]!) / roots[i]!));
  const leverages = weights.map((own, i) => (1 - lambda * inverse[i]!) / own + 1 / count);
  return { head: { weight, bias }, scores, left, leverages };
}

function weighted(rows: readonly Float64Array[], weights: readonly number[], count: number): Float64Array {
  const mean = new Float64Array(rows[0]!.length);
  rows.forEach((row, i) => row.forEach((value, f) => (mean[f] = mean[f]! + (weights[i]! / count) * value)));
  return mean;
}

function dot(one: Float64Array, two: Float64Array): number {
  let [a, b, c, d] = [0, 0, 0, 0];
  let i = 0;
  for (; i + 3 < one.length; i += 4) {
    a += one[i]! * two[i]!;
    b += one[i + 1]! * two[i + 1]!;
    c += one[i + 2]! * two[i + 2]!;
    d += one[i + 3]! * two[i + 3]!;
  }
  for (; i < one.length; i++) a += one[i]! * two[i]!;
  return a + b + c + d;
}

/** Return A⁻¹ B, and the diagonal of A⁻¹, of a symmetric positive A whose lower triangle is given, and overwritten. */
function solved(a: Float64Array, n: number, right: readonly Float64Array[]): [Float64Array[], Float64Array] {
  for (let i = 0; i < n; i++) {
    const row = a.subarray(i * n, i * n + i);
    for (let j = 0; j < i; j++) row[j] = (row[j]! - dot(row.subarray(0, j), a.subarray(j * n, j * n + j))) / a[j * n + j]!;
    a[i * n + i] = Math.sqrt(a[i * n + i]! - dot(row, row));
  }
  const alpha = right.map((row) => row.slice());
  const outputs = right[0]!.length;
  for (let o = 0; o < outputs; o++) {
    const values = Float64Array.from(right, (row) => row[o]!);
    for (let i = 0; i < n; i++) {
      values[i] = (values[i]! - dot(a.subarray(i * n, i * n + i), values.subarray(0, i))) / a[i * n + i]!;
    }
    for (let i = n - 1; i >= 0; i--) {
      const value = (values[i]! /= a[i * n + i]!);
      for (let j = 0; j < i; j++) values[j] = values[j]! - a[i * n + j]! * value;
    }
    values.forEach((value, i) => (alpha[i]![o] = value));
  }
  // the inverse of the triangle, row by row: transposed, so that products run along memory
  const diagonal = new Float64Array(n);
  const column = new Float64Array(n);
  for (let j = 0; j < n; j++) {
    column[j] = 1 / a[j * n + j]!;
    let sum = column[j]! ** 2;
    for (let i = j + 1; i < n; i++) {
      column[i] = -dot(a.subarray(i * n + j, i * n + i), column.subarray(j, i)) / a[i * n + i]!;
      sum += column[i]! ** 2;
    }
    diagonal[j] = sum;
  }
  return [alpha, diagonal];
}

/** The cosine to each class's mean (SimpleShot), and the scores of each sample without it in its own class's mean. */
function classMeans(local: Samples, classes: readonly number[], weights: readonly number[]): [LinearHead, Float64Array[]] {
  const size = local.features[0]!.length;
  const mean = weighted(local.features, weights, weights.reduce((a, b) => a + b, 0));
  const centred = local.features.map((row) => row.map((value, f) => value - mean[f]!));
  const sums = classes.map(() => new Float64Array(size));
  const placesOf = local.labels.map((target) => [...classes.keys()].filter((at) => has(target, classes[at]!)));
  centred.forEach((row, i) => {
    for (const at of placesOf[i]!) row.forEach((value, f) => (sums[at]![f] = sums[at]![f]! + weights[i]! * value));
  });
  const unit = (row: Float64Array): Float64Array => {
    const length = Math.sqrt(dot(row, row)) || 1;
    return row.map((value) => value / length);
  };
  const rows = sums.map(unit);
  const weight = new Float64Array(classes.length * size);
  rows.forEach((row, at) => weight.set(row, at * size));
  const head = { weight, bias: Float64Array.from(rows, (row) => -dot(row, mean)) };
  const left = centred.map((row, i) => {
    const values = apply(head, local.features[i]!);
    for (const at of placesOf[i]!) values[at] = dot(unit(sums[at]!.map((value, f) => value - weights[i]! * row[f]!)), row);
    return values;
  });
  return [head, left];
}

interface Mixture {
  readonly first: readonly Float64Array[];
  /** [k − 1][n][classes]: parts that are about the local classes only. */
  readonly narrow: readonly (readonly Float64Array[])[];
  readonly offset: readonly Float64Array[];
  readonly classes: readonly number[];
  readonly labels: readonly Target[];
  readonly share: readonly number[];
  readonly start: readonly number[];
}

const PULL = 1e-4;

/**
 * Return the numbers θ by which `offset + Σ θ · parts` gives the labels the largest likelihood, by Newton's method. Where
 * a sample may have several, each label is a choice of two: the logit of its absence is zero.
 */
function mixture({ first, narrow, offset, classes, labels, share, start }: Mixture): number[] {
  const [n, outputs, k] = [labels.length, first[0]!.length, narrow.length + 1];
  const multi = typeof labels[0] !== "number";
  const total = share.reduce((a, b) => a + b, 0) * (multi ? outputs : 1);
  const scale = [first, ...narrow].map((part) => {
    const squares = part.reduce((sum, row) => row.reduce((one, value) => one + value * value, sum), 0);
    return Math.sqrt(squares / n / outputs / (multi ? 2 : 1)) + Number.MIN_VALUE * 2 ** 52;
  });
  const begin = start.map((value, i) => value * scale[i]!);
  const place = new Int32Array(outputs).fill(-1);
  classes.forEach((label, at) => (place[label] = at));
  const part = (which: number, i: number, output: number): number => {
    if (!which) return first[i]![output]! / scale[0]!;
    return place[output]! < 0 ? 0 : narrow[which - 1]![i]![place[output]!]! / scale[which]!;
  };
  const logitsOf = (theta: readonly number[], i: number): Float64Array => {
    const logits = first[i]!.map((value) => (theta[0]! * value) / scale[0]!);
    classes.forEach((label, at) => {
      let sum = logits[label]! + offset[i]![at]!;
      for (let which = 1; which < k; which++) sum += (theta[which]! * narrow[which - 1]![i]![at]!) / scale[which]!;
      logits[label] = sum;
    });
    return logits;
  };
  const chances = (theta: readonly number[], i: number): Float64Array => {
    const logits = logitsOf(theta, i);
    if (multi) return logits.map((value) => 1 / (1 + Math.exp(-value)));
    const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    let sum = 0;
    for (let o = 0; o < outputs; o++) sum += logits[o] = Math.exp(logits[o]! - most);
    return logits.map((value) => value / sum);
  };
  const lossOf = (theta: readonly number[]): number => {
    let loss = theta.reduce((sum, value, i) => sum + (PULL / 2) * (value - begin[i]!) ** 2, 0);
    for (let i = 0; i < n; i++) loss += (share[i]! / total) * surprise(logitsOf(theta, i), labels[i]!);
    return loss;
  };
  let theta = begin;
  let loss = lossOf(theta);
  for (let step = 0; step < 50; step++) {
    const gradient = theta.map((value, i) => PULL * (value - begin[i]!));
    const hessian = gradient.map((_, a) => Array.from({ length: k }, (_, b) => (a === b ? PULL : 0)));
    for (let i = 0; i < n; i++) {
      const p = chances(theta, i);
      const w = share[i]! / total;
      if (multi) {
        for (let o = 0; o < outputs; o++) {
          for (let a = 0; a < (place[o]! < 0 ? 1 : k); a++) {
            gradient[a]! += w * (p[o]! - has(labels[i]!, o)) * part(a, i, o);
            for (let b = 0; b <= a; b++) hessian[a]![b]! += w * p[o]! * (1 - p[o]!) * part(a, i, o) * part(b, i, o);
          }
        }
        continue;
      }
      const expected = new Array<number>(k).fill(0);
      const second = hessian.map(() => new Array<number>(k).fill(0));
      for (let o = 0; o < outputs; o++) {
        const highest = place[o]! < 0 ? 1 : k;
        for (let a = 0; a < highest; a++) {
          const one = p[o]! * part(a, i, o);
          expected[a]! += one;
          for (let b = 0; b <= a; b++) second[a]![b]! += one * part(b, i, o);
        }
      }
      for (let a = 0; a < k; a++) {
        gradient[a]! += w * (expected[a]! - part(a, i, labels[i] as number));
        for (let b = 0; b <= a; b++) hessian[a]![b]! += w * (second[a]![b]! - expected[a]! * expected[b]!);
      }
    }
    const flat = Float64Array.from({ length: k * k }, (_, at) => hessian[Math.floor(at / k)]![at % k]!);
    const [move] = solved(flat, k, gradient.map((value) => Float64Array.of(value)));
    let length = 1;
    let next = theta;
    let after = Infinity;
    for (; ; length /= 2) {
      next = theta.map((value, i) => value - length * move[i]![0]!);
      after = lossOf(next);
      if (!(after > loss) || length <= 1e-4) break;
    }
    if (loss - after < 1e-9) break;
    [theta, loss] = [next, after];
  }
  return theta.map((value, i) => value / scale[i]!);
}
