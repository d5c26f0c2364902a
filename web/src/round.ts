/** One round: train on the samples, let models that were trained without them answer, and let the gate judge. */

import type { Bytes } from "./bytes.ts";
import { type Comparison, judgeCheck, judgeSamples, RULES, type Rules, type Verdict } from "./gate.ts";
import type { Model, Sample } from "./model.ts";
import type { Trainer } from "./trainer.ts";

/** A sample with its label; `identity` depends on its content alone. */
export interface Labelled {
  readonly identity: string;
  readonly label: string;
  readonly sample: Sample;
}

export interface RoundResult {
  readonly verdict: Verdict;
  /** The trained bundle's own files; none where it is refused. */
  readonly files?: Map<string, Bytes>;
}

/** Called with a share of the work that is done, from 0 to 1. */
export type Progress = (share: number) => void;

/** Divide rows into folds in which every label is as frequent as in all; it depends on the samples' content alone. */
export function foldsOf(samples: readonly Labelled[], rows: readonly number[], folds: number): number[][] {
  const key = (row: number): string => `${samples[row]!.label}\0${samples[row]!.identity}`;
  const ordered = [...rows].sort((one, two) => (key(one) < key(two) ? -1 : 1));
  return Array.from({ length: Math.min(folds, rows.length) }, (_, first) =>
    ordered.filter((_, place) => place % folds === first),
  );
}

/** Train, and judge by those samples that the model in use was not trained on. */
export async function runRound(
  model: Model,
  trainer: Trainer,
  samples: readonly Labelled[],
  learned: ReadonlySet<string>,
  exported: readonly boolean[] | undefined,
  rules: Rules = RULES,
  progress: Progress = () => {},
): Promise<RoundResult> {
  const fresh = [...samples.keys()].filter((row) => !learned.has(samples[row]!.identity));
  const nothing = { old: [], new: [], known: [], labelled: true, oldCost: 1, newCost: 1 };
  if (fresh.length < rules.least) {
    const verdict = judgeSamples({ ...nothing, old: fresh.map(() => false), new: fresh.map(() => false) }, rules);
    return { verdict };
  }
  const before = await trainer.checked();
  if (new Set(samples.map(({ label }) => label)).size === 1 && !before) {
    const reason = "all photos have one label, and there are no others to notice forgetting: give two classes";
    return { verdict: { ...judgeSamples(nothing, rules), reason } };
  }
  const labels = model.bundle.info.labels;
  const { features, labels: rows } = await trainer.prepare(
    samples.map(({ sample }) => sample),
    samples.map(({ label }) => label),
  );
  const folds = foldsOf(samples, fresh, model.bundle.info.train?.folds ?? 5);
  const parts = folds.length + 1;
  const answers = new Map<number, number>();
  const began = performance.now();
  for (const [number, fold] of folds.entries()) {
    const kept = [...samples.keys()].filter((row) => !fold.includes(row));
    const some = { features: kept.map((row) => features[row]!), labels: kept.map((row) => rows[row]!) };
    const own = fold.map((row) => features[row]!);
    await trainer.train(some, (step, steps) => progress((number + step / steps) / parts), own);
    const found = await trainer.answers(own);
    fold.forEach((row, i) => answers.set(row, found[i]!));
    // another fold, and the training of the model that is accepted, take as long as the folds did in the mean
    const seconds = (performance.now() - began) / 1000;
    if (answers.size >= rules.least && seconds * (1 + 2 / (number + 1)) > (rules.seconds ?? Infinity)) break;
  }
  const judging = [...answers.keys()];
  const old: boolean[] = [];
  for (const row of judging) old.push((await model.predict(samples[row]!.sample)).label === samples[row]!.label);
  const comparison: Comparison = {
    ...nothing,
    old,
    new: judging.map((row) => labels[answers.get(row)!] === samples[row]!.label),
    known: judging.map(() => true),
  };
  let verdict = judgeSamples(comparison, rules);
  if (!verdict.accepted && !(verdict.open && before)) return { verdict };
  const losses = await trainer.train({ features, labels: rows }, (step, steps) => {
    progress((folds.length + step / steps) / parts);
  });
  const after = await trainer.checked();
  const check = before && after ? { exported: exported ?? before, old: before, new: after } : undefined;
  verdict = judgeCheck(verdict, check, rules);
  if (!verdict.accepted) return { verdict };
  const share = (flags: readonly boolean[] | undefined): number | null =>
    flags ? flags.filter(Boolean).length / flags.length : null;
  return { verdict, files: await trainer.save(losses, samples.length, share(before), share(after)) };
}
