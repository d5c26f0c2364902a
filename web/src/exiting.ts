/** Train a bundle's exits by steps, one after the other: the backbone stays, and teaches them. */

import type { Exits } from "./bundle.ts";
import { argmax, type Bytes, product, TunerError } from "./bytes.ts";
import { calibrated, leaving, type Logits } from "./calibration.ts";
import type { Replay } from "./codec.ts";
import { concatenated, confidenceOf, Model, probabilities, type Sample } from "./model.ts";
import { withWeights } from "./onnx.ts";
import type { Heads, Plan } from "./plan.ts";
import { randomOf, shuffled } from "./random.ts";
import type { Runtime } from "./session.ts";
import { StepSession, Tail, type Weights } from "./step.ts";
import { type Target, targetOf } from "./target.ts";
import { half, type Tensor, toHalves, writeTensors } from "./tensors.ts";
import { type Answered, batchesOf, type NewSamples, type Parts, type Prepared, TOLERANCE, Trainer, type Watch } from "./trainer.ts";

const WEIGHTS = "exits.safetensors";
/** Calibration samples, or the thresholds stay as they are. */
const LEAST = 10;
/** Of the new samples, those that set thresholds and train nothing: a fifth, at least 50, at most half. */
const [SHARE, WANTED, MOST_SHARE] = [0.2, 50, 0.5];

/** A new sample: the record of what the first exit reads of it, and the logits of the model's own head. */
interface NewSample {
  readonly sample: Sample;
  readonly record: Uint8Array;
  readonly final: Float32Array;
}

/**
 * What the exits behind the first read of a sample, as float16, and the logits of the model's own head. No exit's weights
 * change it, so that it is computed once from a record.
 */
interface Deeper {
  readonly maps: readonly Uint16Array[];
  readonly final: Float32Array;
}

/** What each exit reads of a sample, and the logits of the segments behind the first. */
interface Onwards {
  readonly maps: readonly Float32Array[];
  readonly logits: Logits;
}

/** Numbers by their 16 bits. */
const HALVES = Float32Array.from({ length: 2 ** 16 }, (_, bits) => half(bits));

export class ExitingTrainer extends Trainer<NewSample> {
  #plan!: Plan;
  #steps: StepSession[] = [];
  #heads: Tail[] = [];
  #given: Weights[] = [];
  #now: Weights[] = [];
  #policy!: Exits;
  #deeper = new WeakMap<Uint8Array, Deeper>();

  static async made(runtime: Runtime, ...parts: Parts): Promise<ExitingTrainer> {
    const trainer = new ExitingTrainer(...parts);
    const [bundle] = parts;
    trainer.#plan = await bundle.plan();
    const { tensors } = await bundle.tensors(WEIGHTS);
    for (let at = 0; at < bundle.info.exits!.thresholds.length; at++) {
      const own = [...tensors].filter(([name]) => name.startsWith(`${at}.`)).map(([name, value]) => [name.slice(`${at}.`.length), value] as const);
      const weights = new Map<string, Tensor>(own);
      trainer.#given.push(weights);
      trainer.#steps.push(await StepSession.open(runtime, await bundle.file(`train/exit${at}.onnx`), weights));
      trainer.#heads.push(await Tail.open(runtime, await bundle.file(`train/exit${at}_logits.onnx`)));
    }
    trainer.reset();
    return trainer;
  }

  async prepare(samples: readonly Sample[], labels: readonly string[]): Promise<Prepared<NewSample>> {
    const targets = labels.map((label) => targetOf(label, this.bundle.info));
    const [features, answers]: [NewSample[], Answered[]] = [[], []];
    for (const sample of samples) {
      const first = await this.#first(sample);
      const { logits } = await this.#onwards(first.features);
      features.push({ sample, record: this.replay.codec.encode(first.features), final: logits.at(-1)! });
      answers.push(this.#left([first.logits, ...logits], this.bundle.info.exits!));
    }
    return { features, labels: targets, answers };
  }

  /** Return what the first exit reads of a sample, and its logits. */
  #first(sample: Sample): Promise<{ readonly features: Float32Array; readonly logits: Float32Array }> {
    return this.model.segment(0, this.model.input(sample), [1, ...this.bundle.info.input_shape]);
  }

  async #onwards(first: Float32Array): Promise<Onwards> {
    const [maps, logits]: [Float32Array[], Float32Array[]] = [[first], []];
    let shape: readonly number[] = [1, ...this.replay.codec.shape];
    for (let at = 1; at < this.model.exits; at++) {
      const found = await this.model.segment(at, maps.at(-1)!, shape);
      if (at < this.model.exits - 1) maps.push(found.features);
      logits.push(found.logits);
      shape = found.shape;
    }
    return { maps, logits };
  }

  /** Return what the exits behind the first read of a record. */
  async #behind(record: Uint8Array): Promise<Deeper> {
    const known = this.#deeper.get(record);
    if (known) return known;
    const { maps, logits } = await this.#onwards(this.#decoded(record));
    const deeper = { maps: maps.slice(1).map(toHalves), final: logits.at(-1)! };
    this.#deeper.set(record, deeper);
    return deeper;
  }

  #decoded(record: Uint8Array): Float32Array {
    const out = new Float32Array(this.replay.codec.elements);
    this.replay.codec.decode(record, out);
    return out;
  }

  #logitsOf(samples: Replay): Promise<Logits[]> {
    return this.#logits([...samples.labels.keys()], (row) => samples.features([row]));
  }

  /** Return what an exit reads of a record. */
  #read(record: Uint8Array, at: number): Float32Array {
    if (!at) return this.#decoded(record);
    const map = this.#deeper.get(record)!.maps[at - 1]!;
    const out = new Float32Array(map.length);
    for (let i = 0; i < out.length; i++) out[i] = HALVES[map[i]!]!;
    return out;
  }

  /** Return the logits of every exit and the model's own, by the current weights; what exits read is not kept. */
  async #logits<T>(samples: readonly T[], first: (sample: T) => Float32Array | Promise<Float32Array>): Promise<Logits[]> {
    const logits: Logits[] = [];
    for (const rows of batchesOf(samples.length, this.#heads[0]!.only("input").shape[0]!)) {
      const found: Onwards[] = [];
      for (const row of rows) found.push(await this.#onwards(await first(samples[row]!)));
      const own: Float32Array[][] = found.map(() => []);
      for (const [at, head] of this.#heads.entries()) {
        const read = concatenated(found.map(({ maps }) => maps[at]!));
        (await head.logits(read, rows.length, this.#now[at]!)).forEach((row, i) => own[i]!.push(row));
      }
      logits.push(...own.map((row, i) => [...row, found[i]!.logits.at(-1)!]));
    }
    return logits;
  }

  #left(logits: Logits, { thresholds, temperatures }: Exits): Answered {
    const { loss } = this.bundle.info;
    const exit = leaving(logits.map((own, at) => confidenceOf(own, temperatures[at]!, loss, logits[at - 1])), thresholds);
    return { logits: logits[exit]!, exit };
  }

  async answers(samples: readonly NewSample[]): Promise<Answered[]> {
    const logits = await this.#logits(samples, async ({ sample }) => (await this.#first(sample)).features);
    return logits.map((own) => this.#left(own, this.#policy));
  }

  protected async checkLogits(): Promise<Float32Array[]> {
    return (await this.#logitsOf(this.check)).map((own) => this.#left(own, this.#policy).logits);
  }

  async train(samples: NewSamples<NewSample>, watch: Watch = () => {}): Promise<number[]> {
    this.reset();
    const { loss } = this.bundle.info;
    const { heads, recipe } = this.#plan;
    const withheld = Math.min(MOST_SHARE, Math.max(SHARE, WANTED / samples.features.length));
    const apart = samples.places.map((place) => place < withheld);
    const own = [...apart.keys()].filter((row) => !apart[row]);
    const records = [...own.map((row) => samples.features[row]!.record), ...this.replay.records];
    const truths = [...own.map((row) => samples.labels[row]!), ...this.replay.labels];
    const count = records.length;
    if (count < 2) throw new TunerError(`${count} photos are too few for the exits: keep more`);
    const finals: Float32Array[] = [];
    for (const record of records) finals.push((await this.#behind(record)).final);
    own.forEach((row, i) => (finals[i] = samples.features[row]!.final)); // without the error of their records
    const targets = finals.map((final, i) => exitTargets(heads, final, truths[i]!, loss));
    const skipped = count % recipe.batchSize === 1 ? 1 - 1 / count : 1; // a norm has no statistics of one
    const least = skipped * entropy(heads, targets, loss);
    const losses = new Array<number>(recipe.epochs).fill(0);
    const steps = this.#stepsOf(count);
    let seen = 0;
    for (const [at, step] of this.#steps.entries()) {
      const random = randomOf(0);
      step.begin(this.#given[at]!);
      for (let epoch = 0, done = 0; epoch < recipe.epochs; epoch++) {
        const order = shuffled([...records.keys()], random);
        let total = 0;
        for (let from = 0; from < order.length; from += recipe.batchSize) {
          const rows = order.slice(from, from + recipe.batchSize);
          if (rows.length === 1) continue;
          const features = concatenated(rows.map((row) => this.#read(records[row]!, at)));
          const batch = { features, labels: rows.flatMap((row) => targets[row]!), count: rows.length };
          total += (await step.step(batch, recipe.rate(done++, steps))) * rows.length;
          watch(++seen, steps * this.#steps.length);
        }
        losses[epoch]! += total / count - least;
        if (!Number.isFinite(total)) throw new TunerError(`the loss became ${total} in epoch ${epoch + 1}`);
      }
      this.#now[at] = step.weights();
    }
    const judged = [...apart.keys()].filter((row) => apart[row]);
    if (judged.length >= LEAST) {
      const logits = await this.#logits(judged, (row) => this.#decoded(samples.features[row]!.record));
      this.#policy = calibrated(this.#policy, heads, logits, judged.map((row) => samples.labels[row]!), loss);
    }
    return losses;
  }

  #stepsOf(samples: number): number {
    return this.#plan.recipe.epochs * Math.ceil(samples / this.#plan.recipe.batchSize);
  }

  async expected(samples: number): Promise<number> {
    for (const record of this.replay.records) await this.#behind(record);
    let seconds = 0;
    for (const [at, step] of this.#steps.entries()) {
      step.begin(this.#given[at]!);
      seconds += this.#stepsOf(samples + this.replay.length) * (await step.pace());
    }
    return seconds;
  }

  protected async written(): Promise<Map<string, Bytes>> {
    const state = new Map(this.#now.flatMap((own, at) => [...own].map(([name, value]) => [`${at}.${name}`, value] as const)));
    const files = new Map([[WEIGHTS, writeTensors({ tensors: state, metadata: {} })]]);
    for (const [at, own] of this.#now.entries()) {
      const name = this.#policy.segments[at]!;
      const of = [...own].filter(([, { shape }]) => shape.length).map(([key, { data }]) => {
        return [`side.${key}`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength)] as const;
      });
      files.set(name, withWeights(await this.bundle.file(name), new Map(of)));
    }
    return files;
  }

  protected override described(): { readonly exits: Exits } {
    return { exits: this.#policy };
  }

  async compare(written: Model): Promise<void> {
    const random = randomOf(0);
    let shape: readonly number[] = [1, ...this.bundle.info.input_shape];
    let features = Float32Array.from({ length: product(shape) }, () => random() * 2 - 1);
    for (const [at, head] of this.#heads.entries()) {
      const found = await written.segment(at, features, shape);
      const [own] = await head.logits(found.features, 1, this.#now[at]!);
      const difference = Math.max(...own!.map((value, i) => Math.abs(value - found.logits[i]!)));
      if (!(difference <= TOLERANCE)) throw new TunerError(`the logits of the written exit ${at} differ by ${difference}: learn again`);
      [features, shape] = [Float32Array.from(found.features), found.shape];
    }
  }

  /** Return what exits learn of the first check samples, and the temperatures and thresholds that these give. */
  async recalibrated(most: number): Promise<{ readonly targets: readonly number[]; readonly calibrated: readonly number[] }> {
    const { loss } = this.bundle.info;
    const { heads } = this.#plan;
    const check = this.check.select([...this.check.labels.keys()].slice(0, most));
    const logits = await this.#logitsOf(check);
    const { temperatures, thresholds } = calibrated(this.#policy, heads, logits, check.labels, loss);
    const targets = logits.flatMap((own, i) => exitTargets(heads, own.at(-1)!, check.labels[i]!, loss));
    return { targets, calibrated: [...temperatures, ...thresholds] };
  }

  reset(): void {
    this.#now = [...this.#given];
    this.#policy = this.bundle.info.exits!;
  }

  async release(): Promise<void> {
    for (const one of [...this.#steps, ...this.#heads]) await one.release();
  }
}

/** Return what exits learn: the hard answer, then the softened one; of a regression both are values. */
function exitTargets(heads: Heads, final: Float32Array, truth: Target, loss: string): number[] {
  const supervised = heads.supervised > 0;
  const soft = loss === "regression" ? [...final].map((value) => value / heads.temperature) : [...probabilities(final, heads.temperature, loss === "multi-label")];
  const of = (row: number): number[] => [...final.keys()].map((label) => Number(label === row));
  if (typeof truth === "number") return [...of(supervised ? truth : argmax(final)), ...soft];
  if (supervised) return [...truth, ...soft];
  return [...[...final].map((value) => (loss === "regression" ? value : Number(value > 0))), ...soft];
}

/** Return what no exit can take off its mean loss: the weighted entropy of the softened answers; 0 of values. */
function entropy(heads: Heads, targets: readonly (readonly number[])[], loss: string): number {
  if (loss === "regression") return 0;
  const own = (p: number): number => (p > 0 ? -p * Math.log(p) : 0);
  const each = targets.map((target) => {
    const soft = target.slice(target.length / 2);
    if (loss === "multi-label") return soft.reduce((sum, p) => sum + own(p) + own(1 - p), 0) / soft.length;
    return soft.reduce((sum, p) => sum + own(p), 0);
  });
  return heads.distilled * heads.temperature ** 2 * (each.reduce((a, b) => a + b, 0) / each.length);
}
