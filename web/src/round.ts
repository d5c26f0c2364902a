/** One round: train on the samples, let models that were trained without them answer, and let the gate judge. */

import { SOLVED } from "./bundle.ts";
import type { Bytes } from "./bytes.ts";
import { type Comparison, isDecided, judgeCheck, judgeEarlier, judgeSamples, RULES, type Rules, type Verdict } from "./gate.ts";
import { type Model, partsOf, probabilities, type Sample } from "./model.ts";
import { isRight, NEAR } from "./target.ts";
import type { Answered, Checked, NewSamples, Trainer } from "./trainer.ts";

/**
 * A sample with its label; `identity` depends on its content alone. Several labels or numbers are joined by `SEPARATOR`.
 * A clip is one sample: it is trained on patch by patch, and judged as a whole by models that had none of it.
 */
export interface Labelled {
  readonly identity: string;
  readonly label: string;
  readonly sample: Sample;
}

export interface RoundResult {
  readonly verdict: Verdict;
  /** The trained bundle's own files, and its answers to the check samples; none where it is refused. */
  readonly files?: Map<string, Bytes>;
  readonly checked?: Checked | undefined;
}

/** Answers to the check samples: of the model in use, and of the bundle as it was exported. */
export interface Before {
  readonly old: Checked | undefined;
  readonly exported: Checked | undefined;
}

const LATE = "there was no time to judge by";

/** Called with a share of the work that is done, from 0 to 1. */
export type Progress = (share: number) => void;

/**
 * Divide rows into folds in which every label is as frequent as in all; it depends on the samples' content alone. Numbers
 * are not labels.
 */
export function foldsOf(samples: readonly Labelled[], rows: readonly number[], folds: number, byLabel = true): number[][] {
  const key = (row: number): string => `${byLabel ? samples[row]!.label : ""}\0${samples[row]!.identity}`;
  const ordered = [...rows].sort((one, two) => (key(one) < key(two) ? -1 : 1));
  return Array.from({ length: Math.min(folds, rows.length) }, (_, first) =>
    ordered.filter((_, place) => place % folds === first),
  );
}

/**
 * Return into how many folds samples are divided, and how many of these may be answered in a time.
 *
 * Where there is no time for all of them, they are fewer and larger, so that those that are answered are enough to judge.
 */
export function planFolds(samples: number, wanted: number, training: number, seconds: number, least: number): [folds: number, most: number] {
  const most = Math.max(1, Math.floor(seconds / training) - 1); // the accepted model is trained too
  if (most >= wanted) return [wanted, wanted];
  return [Math.min(wanted, Math.max(2, Math.floor(samples / Math.ceil(least / most)))), most];
}

/**
 * Train, and judge by those samples that the model in use was not trained on.
 *
 * `added` are labels that the model in use learned nothing of: a gain on them must not come at the expense of the others.
 */
export async function runRound(
  model: Model,
  trainer: Trainer,
  samples: readonly Labelled[],
  learned: ReadonlySet<string>,
  checks: () => Promise<Before>,
  rules: Rules = RULES,
  progress: Progress = () => {},
  added: ReadonlySet<string> = new Set(),
): Promise<RoundResult> {
  const began = performance.now();
  const passed = (): number => (performance.now() - began) / 1000;
  const fresh = [...samples.keys()].filter((row) => !learned.has(samples[row]!.identity));
  const { exits, loss, train } = model.bundle.info;
  const numbers = loss === "regression";
  const nothing = { old: [], new: [], known: [], labelled: true, oldCost: 1, newCost: 1, right: numbers ? NEAR : "right" };
  if (fresh.length < rules.least) {
    const verdict = judgeSamples({ ...nothing, old: fresh.map(() => false), new: fresh.map(() => false) }, rules);
    return { verdict };
  }
  const before = await checks();
  if (!numbers && new Set(samples.map(({ label }) => label)).size === 1 && !before.old && !trainer.earlier) {
    const reason = "all photos have one label, and there are no others to notice forgetting: give two classes";
    return { verdict: { ...judgeSamples(nothing, rules), reason } };
  }
  const checking = passed();
  const parts = samples.flatMap(({ sample }, row) => partsOf(sample, model.bundle.info).map((part) => ({ row, part })));
  const prepared = await trainer.prepare(
    parts.map(({ part }) => part),
    parts.map(({ row }) => samples[row]!.label),
  );
  const partsAt: number[][] = samples.map(() => []);
  parts.forEach(({ row }, at) => partsAt[row]!.push(at));
  const labels = partsAt.map(([first]) => prepared.labels[first!]!);
  const whole = (answers: readonly Answered[]): Answered => meanAnswer(answers, model);
  const given = partsAt.map((all) => whole(all.map((at) => prepared.answers[at]!)));
  const old = fresh.map((row) => isRight(given[row]!.logits, labels[row]!, loss));
  const places = samples.map(({ identity }) => parseInt(identity.slice(0, 8), 16) / 2 ** 32);
  const read = (rows: readonly number[]): NewSamples<unknown> => {
    const all = rows.flatMap((row) => partsAt[row]!.map((at) => ({ row, at })));
    return { features: all.map(({ at }) => prepared.features[at]!), labels: all.map(({ row }) => labels[row]!), places: all.map(({ row }) => places[row]!) };
  };
  const taken = new Map<number, number>(); // exits that the trained models' answers left at
  const shares = exits?.shares ?? [1];
  const cost = (rows: readonly number[], exitOf: (row: number) => number): number => rows.reduce((sum, row) => sum + shares[exitOf(row)]!, 0) / rows.length;
  const training = await trainer.expected(parts.length);
  const limit = (rules.seconds ?? Infinity) - checking; // the new model is checked too
  const wanted = train?.folds ?? 5;
  const begun = passed();
  const [count, most] = planFolds(fresh.length, wanted, training, limit - passed(), rules.least);
  const folds = foldsOf(samples, fresh, count, !numbers);
  const turns = Math.min(folds.length, most) + 1;
  const answers = new Map<number, boolean>();
  let trained = 0;
  const all = read([...samples.keys()]);
  const leavesOut = trainer.leavesOut && parts.length === samples.length; // patches of a clip are left out together
  let losses = leavesOut ? await trainer.train(all, (step, steps) => progress(step / steps)) : undefined;
  const left = losses && trainer.leftOut(read(fresh).features);
  const answer = (row: number, { logits, exit }: Answered): void => {
    answers.set(row, isRight(logits, labels[row]!, loss));
    taken.set(row, exit);
  };
  left?.forEach((found, at) => answer(fresh[at]!, found));
  let rest = LATE;
  for (const [number, fold] of left ? [] : folds.entries()) {
    const some = read([...samples.keys()].filter((row) => !fold.includes(row)));
    const own = read(fold).features;
    await trainer.train(some, (step, steps) => progress(Math.min(1, (number + step / steps) / turns)), own);
    const found = [...(await trainer.answers(own))];
    trained = number + 1;
    for (const row of fold) answer(row, whole(found.splice(0, partsAt[row]!.length)));
    // an answer may count for leaving earlier too: then all are looked at
    if (!exits && isDecided(old, fresh.map((row) => answers.get(row)), rules)) {
      rest = "the decision does not depend on";
      break;
    }
    // another fold, and the training of the model that is accepted
    const seconds = passed();
    if (answers.size >= rules.least && seconds + (2 * (seconds - checking)) / (number + 1) > limit) break;
  }
  const judging = [...fresh.keys()].filter((at) => answers.has(fresh[at]!));
  const judged = judging.map((at) => fresh[at]!);
  const comparison: Comparison = {
    ...nothing,
    old: judging.map((at) => old[at]!),
    new: judging.map((at) => answers.get(fresh[at]!)!),
    known: judged.map((row) => !added.has(samples[row]!.label)),
    oldCost: cost(judged, (row) => given[row]!.exit),
    newCost: cost(judged, (row) => taken.get(row)!),
    adds: train?.kind === SOLVED,
  };
  let verdict = judgeSamples(comparison, rules);
  const others = fresh.length - judging.length;
  if (others) verdict = { ...verdict, reason: `${verdict.reason} (${rest} the other ${others})` };
  if (others && rest === LATE) verdict = { ...verdict, unjudged: others, seconds: begun + ((passed() - begun) / trained) * (wanted + 1) };
  if (!verdict.accepted && !(verdict.open && before.old)) return { verdict };
  losses ??= await trainer.train(all, (step, steps) => progress((turns - 1 + step / steps) / turns));
  const after = await trainer.checked();
  const check = before.old && after ? { exported: (before.exported ?? before.old).right, old: before.old.right, new: after.right, name: numbers ? "known photos" : "known classes" } : undefined;
  verdict = judgeCheck(verdict, check, rules);
  const earlier = await trainer.earlierRight();
  if (earlier) verdict = judgeEarlier(verdict, earlier, rules);
  if (!verdict.accepted) return { verdict };
  return { verdict, files: await trainer.save(losses, samples.length, before.old?.score ?? null, after?.score ?? null), checked: after };
}

/** Return the answer to a sample of these parts: the mean of their probabilities, and the last exit that one of them left at. */
function meanAnswer(answers: readonly Answered[], { bundle: { info } }: Model): Answered {
  if (answers.length === 1) return answers[0]!;
  const each = answers.map(({ logits, exit }) =>
    info.loss === "regression" ? logits : probabilities(logits, info.exits?.temperatures[exit] ?? 1, info.loss === "multi-label"),
  );
  const logits = Float32Array.from(answers[0]!.logits, (_, i) => each.reduce((sum, one) => sum + one[i]!, 0) / each.length);
  return { logits, exit: Math.max(...answers.map(({ exit }) => exit)) };
}
