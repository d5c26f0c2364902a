/** A bundle in use on this device: it predicts, keeps labelled samples, learns in rounds, and goes back. */

import { Bundle, FILE, unextendable, unlearnable } from "./bundle.ts";
import { type Bytes, sha256, TunerError } from "./bytes.ts";
import type { Rules, Verdict } from "./gate.ts";
import { Model, type Prediction, type Sample } from "./model.ts";
import type { Before, Labelled, Progress } from "./round.ts";
import type { Runtime } from "./session.ts";
import type { Store } from "./store.ts";
import { isNew, labelsBy, SEPARATOR, targetOf } from "./target.ts";
import type { Checked, Trainer } from "./trainer.ts";
import { writeZip } from "./zip.ts";

/** Rounds in use, the newest first, the exported bundle last; and how many there have ever been. */
interface Rounds {
  readonly names: readonly string[];
  readonly count: number;
}

interface Round {
  readonly files: Map<string, Bytes>;
  /** Identities of the samples that it was trained on. */
  readonly learned: readonly string[];
  readonly verdict: Verdict;
}

/** What a sample is kept as, and was before; nothing where it was not kept. */
export interface Change {
  readonly identity: string;
  readonly label: string;
  readonly before?: string;
}

export interface Status {
  readonly round: string;
  /** Labels of the bundle in use. */
  readonly labels: readonly string[];
  /** Why no other label can be learned here; empty where one can. */
  readonly fixed: string;
  readonly canGoBack: boolean;
  /** Why the bundle cannot learn here; empty where it can. */
  readonly refusal: string;
  readonly samples: number;
  readonly verdict?: Verdict;
}

export const EXPORTED = "0000";
const KEPT = 2;
const MOST_SAMPLES = 500;

/** A bundle with what this device has made of it. */
export class Learner {
  #model!: Model;
  /** Samples that were removed since the bundle was opened, so that this can be undone. */
  readonly #removed = new Map<string, Labelled>();

  private constructor(
    readonly exported: Bundle,
    readonly runtime: Runtime,
    readonly store: Store,
  ) {}

  /** Open a bundle with the round in use; rounds that cannot be read are left for the one before. */
  static async open(exported: Bundle, runtime: Runtime, store: Store): Promise<Learner> {
    const learner = new Learner(exported, runtime, store);
    for (;;) {
      const { names, count } = await learner.#rounds();
      try {
        learner.#model = await Model.open(await learner.#bundleOf(names[0]!), runtime);
        return learner;
      } catch (error) {
        if (names.length === 1) throw error;
        await learner.#set({ names: names.slice(1), count });
      }
    }
  }

  get bundle(): Bundle {
    return this.#model.bundle;
  }

  /** Predict with the round in use. */
  predict(sample: Sample): Promise<Prediction> {
    return this.#model.predict(sample);
  }

  /**
   * Keep a sample, or one that is kept already, by its identity, with its true label; a later label replaces the one that
   * it had. A label that the bundle does not have is learned in the next round. The oldest samples leave.
   */
  async keep(from: Sample | string, label: string): Promise<Change> {
    const { info } = this.bundle;
    if (isNew(label, info)) label = await (await import("./labels.ts")).newLabel(label, this.bundle);
    else targetOf(label, info);
    label = labelsBy(label, info).join(SEPARATOR);
    const identity = typeof from === "string" ? from : identityOf(from);
    const kept = await this.#keyOf(identity);
    const before = kept ? await this.store.get<Labelled>(kept) : undefined;
    const sample = typeof from === "string" ? (before ?? this.#removed.get(identity))?.sample : from;
    if (!sample) throw new TunerError("this photo is no longer there: choose it again");
    const key = kept ?? this.#key(`sample/${String(Date.now()).padStart(15, "0")}-${identity}`);
    await this.store.set(key, { identity, label, sample } satisfies Labelled);
    const keys = await this.store.keys(this.#key("sample/"));
    for (const old of keys.slice(0, Math.max(0, keys.length - MOST_SAMPLES))) await this.store.delete(old);
    return { identity, label, ...(before ? { before: before.label } : {}) };
  }

  /** Remove a sample; `keep` still finds it until the bundle is opened again. */
  async remove(identity: string): Promise<void> {
    const key = await this.#keyOf(identity);
    const kept = key ? await this.store.get<Labelled>(key) : undefined;
    if (!key || !kept) return;
    this.#removed.set(identity, kept);
    await this.store.delete(key);
  }

  /** Return the samples that are kept, the oldest first. */
  async samples(): Promise<Labelled[]> {
    const keys = await this.store.keys(this.#key("sample/"));
    const samples = await Promise.all(keys.map((key) => this.store.get<Labelled>(key)));
    return samples.filter((kept) => kept !== undefined);
  }

  /**
   * Train on the samples that are kept, with their new labels; the new model is in use if the gate accepts it.
   *
   * `seconds` replaces the time of the rules.
   */
  async learn(progress?: Progress, rules?: Rules, seconds?: number): Promise<Verdict> {
    const { names, count } = await this.#rounds();
    const round = await this.#round(names[0]!);
    const samples = await this.samples();
    const [{ openTrainer }, { runRound }, { RULES }] = await Promise.all([import("./trainers.ts"), import("./round.ts"), import("./gate.ts")]);
    const limits = { ...(rules ?? RULES), ...(seconds === undefined ? {} : { seconds }) };
    const added = [...new Set(samples.map(({ label }) => label))].filter((label) => isNew(label, this.bundle.info));
    const bundle = added.length ? await (await import("./labels.ts")).withLabels(this.bundle, added) : this.bundle;
    const old = added.length ? await Model.open(bundle, this.runtime) : this.#model;
    const trainer = await openTrainer(bundle, this.runtime, old);
    try {
      const learned = new Set(round?.learned);
      const result = await runRound(old, trainer, samples, learned, () => this.#before(names[0]!, trainer), limits, progress, new Set(added));
      if (!result.files) return result.verdict;
      const name = String(count + 1).padStart(4, "0");
      const identities = new Set([...learned, ...samples.map(({ identity }) => identity)]);
      const files = new Map([...(round?.files ?? []), ...bundle.changed, ...result.files]); // what the round before had of its own stays
      await this.store.set(this.#key(`round/${name}`), { files, learned: [...identities], verdict: result.verdict });
      const model = await Model.open(await this.#bundleOf(name), this.runtime);
      await trainer.compare(model);
      await this.store.set(this.#key(`check/${name}`), result.checked);
      await this.#set({ names: [name, ...names.slice(0, -1).slice(0, KEPT - 1), EXPORTED], count: count + 1 });
      await this.#use(model);
      return result.verdict;
    } finally {
      await trainer.release();
      if (added.length) await old.release();
    }
  }

  /** Return to the round before the one in use. */
  async rollBack(): Promise<string> {
    const { names, count } = await this.#rounds();
    if (names.length === 1) throw new TunerError("the bundle is in use as it was exported: there is no earlier round");
    const model = await Model.open(await this.#bundleOf(names[1]!), this.runtime);
    await this.#set({ names: names.slice(1), count });
    await this.#use(model);
    return names[1]!;
  }

  /** Remove every sample and every round: the bundle is in use as it was exported. */
  async forget(): Promise<void> {
    for (const key of await this.store.keys(this.#key(""))) await this.store.delete(key);
    this.#removed.clear();
    await this.#use(await Model.open(this.exported, this.runtime));
  }

  /** Return a zip of the bundle in use, which `tuner predict` and `tuner show` read. */
  async zip(): Promise<Blob> {
    return writeZip(await this.bundle.files());
  }

  async status(): Promise<Status> {
    const { names } = await this.#rounds();
    const round = await this.#round(names[0]!);
    const keys = await this.store.keys(this.#key("sample/"));
    return {
      round: names[0]!,
      labels: this.bundle.info.labels,
      fixed: unextendable(this.bundle.info),
      canGoBack: names.length > 1,
      refusal: unlearnable(this.exported.info),
      samples: keys.length,
      ...(round ? { verdict: round.verdict } : {}),
    };
  }

  #key(name: string): string {
    return `${this.exported.identity}/${name}`;
  }

  async #keyOf(identity: string): Promise<string | undefined> {
    return (await this.store.keys(this.#key("sample/"))).find((key) => key.endsWith(`-${identity}`));
  }

  async #rounds(): Promise<Rounds> {
    return (await this.store.get<Rounds>(this.#key("rounds"))) ?? { names: [EXPORTED], count: 0 };
  }

  async #round(name: string): Promise<Round | undefined> {
    return name === EXPORTED ? undefined : this.store.get<Round>(this.#key(`round/${name}`));
  }

  /** Put rounds in use, then remove those that no longer are: a page that is closed in between keeps both. */
  async #set(rounds: Rounds): Promise<void> {
    await this.store.set(this.#key("rounds"), rounds);
    for (const kind of ["round/", "check/"]) {
      for (const key of await this.store.keys(this.#key(kind))) {
        if (!rounds.names.includes(key.slice(-4))) await this.store.delete(key);
      }
    }
  }

  async #bundleOf(name: string): Promise<Bundle> {
    if (name === EXPORTED) return this.exported;
    const round = await this.#round(name);
    if (!round) throw new TunerError(`round ${name} is not there any more: go back`);
    return Bundle.open(async (file) => round.files.get(file) ?? (file === FILE ? undefined : this.exported.file(file)));
  }

  /** Return the answers to the check samples that a new model is compared with; each model gives them once. */
  async #before(name: string, trainer: Trainer): Promise<Before> {
    const old = await this.#checked(name, () => trainer.checked());
    if (name === EXPORTED) return { old, exported: old };
    const exported = await this.#checked(EXPORTED, async () => {
      const model = await Model.open(this.exported, this.runtime);
      const { openTrainer } = await import("./trainers.ts");
      const first = await openTrainer(this.exported, this.runtime, model);
      try {
        return await first.checked();
      } finally {
        await first.release();
        await model.release();
      }
    });
    return { old, exported };
  }

  async #checked(name: string, check: () => Promise<Checked | undefined>): Promise<Checked | undefined> {
    const key = this.#key(`check/${name}`);
    const kept = await this.store.get<Checked>(key);
    if (kept) return kept;
    const found = await check();
    if (found) await this.store.set(key, found);
    return found;
  }

  async #use(model: Model): Promise<void> {
    const before = this.#model;
    this.#model = model;
    await before.release();
  }
}

/** Return what a sample is known by: a hash of its content. */
export function identityOf(sample: Sample): string {
  return sha256(new Uint8Array(sample.buffer, sample.byteOffset, sample.byteLength)).slice(0, 32);
}
