/** The gate that a new model must pass: better on the user's samples, and without certain harm elsewhere. */

export interface Rules {
  readonly confidence: number;
  readonly globalDrop: number;
  readonly least: number;
  /** Time that a round may take: on a slow device, fewer models are trained to judge by. None where it is not given. */
  readonly seconds?: number;
}

export const RULES: Rules = { confidence: 0.95, globalDrop: 0.01, least: 10, seconds: 25 };

/** Whether answers to the user's samples are right, of the model in use and of models trained without them. */
export interface Comparison {
  readonly old: readonly boolean[];
  readonly new: readonly boolean[];
  readonly known: readonly boolean[];
  readonly labelled: boolean;
  readonly oldCost: number;
  readonly newCost: number;
  /** What a right answer is, in words. */
  readonly right?: string;
  /** Whether the new model is solved from all samples of the old one and more: then a tie accepts it. */
  readonly adds?: boolean;
}

export interface GlobalCheck {
  readonly exported: readonly boolean[];
  readonly old: readonly boolean[];
  readonly new: readonly boolean[];
  /** What the share of right answers is called. */
  readonly name?: string;
}

/** Whether the user's earlier samples are answered right: before training, and after. */
export interface Earlier {
  readonly old: readonly boolean[];
  readonly new: readonly boolean[];
  /** Which have a label that no new sample has; none where the new model only adds samples. */
  readonly others: readonly boolean[];
}

export interface Verdict {
  readonly accepted: boolean;
  readonly open: boolean;
  readonly reason: string;
  /** Samples that judged, and how many of them are answered right before and after. */
  readonly samples: number;
  readonly before: number;
  readonly after: number;
  readonly globalBefore?: number;
  readonly globalAfter?: number;
  /** Share of the user's earlier samples that are answered right. */
  readonly earlierBefore?: number;
  readonly earlierAfter?: number;
  /** Samples that there was no time to judge by, and the seconds that a round takes which judges by all. */
  readonly unjudged?: number;
  readonly seconds?: number;
  /** Certain loss and gain on the check samples. */
  readonly bounds?: readonly [number, number];
}

const CHEAPER = 0.99;
const sum = (flags: readonly boolean[]): number => flags.filter(Boolean).length;
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;

/**
 * Decide by the user's own samples; ties keep the old model, unless the new one's answers leave earlier, or it only adds
 * samples to those that the old one was solved from: it has nothing to lose by them, if any is right.
 */
export function judgeSamples(comparison: Comparison, rules: Rules = RULES): Verdict {
  const [samples, before, after] = [comparison.old.length, sum(comparison.old), sum(comparison.new)];
  const verdict = { accepted: false, open: false, samples, before, after };
  const right = comparison.right ?? "right";
  const counts = `${before} of ${samples} ${right} before, ${after} after`;
  if (samples < rules.least) {
    return { ...verdict, reason: `${samples} photos to judge by are too few: give at least ${rules.least}` };
  }
  const known = comparison.known;
  const harmed = [known.map(() => true), known].some((among) => {
    const [lost, won] = changes(comparison.old.filter((_, i) => among[i]), comparison.new.filter((_, i) => among[i]));
    return harm(lost, won) <= 1 - rules.confidence;
  });
  const open = !harmed && comparison.labelled && comparison.newCost <= comparison.oldCost;
  if (after < before) return { ...verdict, open, reason: `fewer of your photos are ${right}: ${counts}` };
  if (after === before && !(comparison.adds && after) && comparison.newCost > CHEAPER * comparison.oldCost) {
    return { ...verdict, open, reason: `no better on your photos: ${counts}` };
  }
  if (harmed) return { ...verdict, reason: `worse on photos that were ${right} before: ${counts}` };
  return { ...verdict, accepted: true, reason: counts };
}

/**
 * Return whether the samples that are not answered yet can no longer change what is decided: whether the new model is
 * accepted if all of those answers are wrong, or refused if all of them are right.
 */
export function isDecided(old: readonly boolean[], answers: readonly (boolean | undefined)[], rules: Rules = RULES): boolean {
  if (answers.filter((answer) => answer !== undefined).length < rules.least) return false;
  const verdict = (other: boolean): Verdict => {
    return judgeSamples({ old, new: answers.map((answer) => answer ?? other), known: old.map(() => true), labelled: true, oldCost: 1, newCost: 1 }, rules);
  };
  const best = verdict(true);
  return verdict(false).accepted || !(best.accepted || best.open);
}

/** Look at the global check samples: what is forgotten, and what is gained. */
export function judgeCheck(verdict: Verdict, check: GlobalCheck | undefined, rules: Rules = RULES): Verdict {
  if (!check) return verdict;
  const count = check.new.length;
  const [globalBefore, globalAfter] = [sum(check.old) / count, sum(check.new) / count];
  const [lost, won] = changes(check.old, check.new);
  const loss = leastDrop(lost, won, count, rules.confidence);
  const gain = leastDrop(won, lost, count, rules.confidence);
  const sinceExport = leastDrop(...changes(check.exported, check.new), count, rules.confidence);
  const known = `${check.name ?? "known classes"} ${percent(globalBefore)} before, ${percent(globalAfter)} after`;
  const reason = `${verdict.reason}; ${known}`;
  const judged: Verdict = { ...verdict, globalBefore, globalAfter, bounds: [loss, gain], reason };
  if (verdict.open && gain > 0) {
    const counts = verdict.reason.slice(verdict.reason.indexOf(": ") + 2);
    const gained = `your photos leave it open, and ${check.name ?? "known classes"} certainly gain: ${counts}; ${known}`;
    return { ...judged, accepted: true, reason: gained };
  }
  if (verdict.open) return judged;
  if (loss > rules.globalDrop) return { ...judged, accepted: false, reason: `too much is forgotten: ${reason}` };
  if (globalAfter < globalBefore && sinceExport > rules.globalDrop) {
    return { ...judged, accepted: false, reason: `too much is forgotten since the export: ${reason}` };
  }
  return judged;
}

/**
 * Look at the user's earlier samples: an accepted model is refused where it certainly forgets too many of them, or of those
 * whose labels did not come, which the gain of the others may hide.
 */
export function judgeEarlier(verdict: Verdict, earlier: Earlier, rules: Rules = RULES): Verdict {
  const { old, new: now, others } = earlier;
  const [earlierBefore, earlierAfter] = [sum(old) / old.length, sum(now) / now.length];
  const reason = `${verdict.reason}; earlier photos ${percent(earlierBefore)} before, ${percent(earlierAfter)} after`;
  const judged = { ...verdict, earlierBefore, earlierAfter, reason };
  const forgets = (among: readonly boolean[]): boolean => {
    const lost = changes(old.filter((_, i) => among[i]), now.filter((_, i) => among[i]));
    return leastDrop(...lost, sum(among), rules.confidence) > rules.globalDrop;
  };
  if (!verdict.accepted) return judged;
  if (forgets(old.map(() => true))) return { ...judged, accepted: false, reason: `too many of your earlier photos are forgotten: ${reason}` };
  if (sum(others) && sum(others) < old.length && forgets(others)) {
    return { ...judged, accepted: false, reason: `too many of your earlier photos of other labels are forgotten: ${reason}` };
  }
  return judged;
}

function changes(old: readonly boolean[], now: readonly boolean[]): [number, number] {
  return [sum(old.map((right, i) => right && !now[i])), sum(old.map((right, i) => !right && now[i]!))];
}

/** Return McNemar's one-sided p-value of harm: the probability of as many losses or more from equally good models. */
export function harm(lost: number, won: number): number {
  const trials = lost + won;
  let [term, total] = [1n, 0n];
  for (let successes = 0; successes <= trials; successes++) {
    if (successes >= lost) total += term;
    term = (term * BigInt(trials - successes)) / BigInt(successes + 1);
  }
  return Number((total * 2n ** 60n) / 2n ** BigInt(trials)) / 2 ** 60;
}

/** Return the lower one-sided bound of a drop of accuracy, by Tango's test. */
export function leastDrop(lost: number, won: number, count: number, confidence: number): number {
  const quantile = normalQuantile(confidence);
  let [low, high] = [-1, (lost - won) / count];
  for (let i = 0; i < 40; i++) {
    const middle = (low + high) / 2;
    if (tango(lost, won, count, middle) > quantile) low = middle;
    else high = middle;
  }
  return low;
}

function tango(lost: number, won: number, count: number, drop: number): number {
  const linear = lost + won - drop * (2 * count - lost + won);
  const root = linear ** 2 + 8 * count * won * drop * (1 - drop);
  const wonShare = (linear + Math.sqrt(Math.max(0, root))) / (4 * count);
  const variance = count * (2 * wonShare + drop * (1 - drop));
  const excess = lost - won - count * drop;
  return variance > 0 ? excess / Math.sqrt(variance) : excess ? Infinity * excess : 0;
}

/** Return the quantile of the normal distribution, of a probability from 0.5 to below 1. */
export function normalQuantile(probability: number): number {
  let [low, high] = [0, 8];
  for (let i = 0; i < 60; i++) {
    const x = (low + high) / 2;
    let [term, total] = [x, x];
    for (let odd = 3; odd < 300; odd += 2) total += term *= (x * x) / odd;
    if (0.5 + (total * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI) < probability) low = x;
    else high = x;
  }
  return low;
}
