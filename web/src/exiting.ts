/** Train a bundle's exits by steps, one after the other: the backbone stays, and teaches them. */

import type { Exits } from "./bundle.ts";
import { argmax, type Bytes, product, TunerError } from "./bytes.ts";
import { calibrated, leaving, type Logits } from "./calibration.ts";
import type { Replay } from "./codec.ts";
import { confidenceOf, Model, probabilities, type Sample } from "./model.ts";
import { withWeights } from "./onnx.ts";
import type { Heads, Plan } from "./plan.ts";
import { randomOf, shuffled } from "./random.ts";
import type { Runtime } from "./session.ts";
import { StepSession, Tail, type Weights } from "./step.ts";
import { rateOf } from "./stepping.ts";
import { type Target, targetOf } from "./target.ts";
import { type Tensor, writeTensors } from "./tensors.ts";
import { type Answered, type NewSamples, type Parts, type Prepared, TOLERANCE, Trainer, type Watch } from "./trainer.ts";

const WEIGHTS = "exits.safetensors";
/** Calibration samples, or the thresholds stay as they are. */
const LEAST = 10;
/** Of the new samples, those that set thresholds and train nothing: a fifth, at least 50, at most half. */
const [SHARE, WANTED, MOST_SHARE] = [0.2, 50, 0.5];

/**
 * What a sample is on its way, one after the other: what each exit reads of it, and the logits of the model's own head.
 * No exit's weights change it, so that it is computed once.
 */
type Way = Float32Array;

export class ExitingTrainer extends Trainer {
  #plan!: Plan;
  #steps: StepSession[] = [];
  #heads: Tail[] = [];
  #given: Weights[] = [];
  #now: Weights[] = [];
  #policy!: Exits;
  /** Sizes of what each exit reads. */
  #sizes: number[] = [];
  #ways = new Map<Replay, Way[]>();

  static async made(runtime: Runtime, ...parts: Parts): Promise<Trainer> {
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
    trainer.#sizes = trainer.#steps.map((step) => product(step.only("input").shape) / step.batchSize);
    trainer.reset();
    return trainer;
  }

  override async prepare(samples: readonly Sample[], labels: readonly string[]): Promise<Prepared> {
    const targets = labels.map((label) => targetOf(label, this.bundle.info));
    const [features, answers]: [Way[], Answered[]] = [[], []];
    for (const sample of samples) {
      const first = await this.model.segment(0, this.model.input(sample), [1, ...this.bundle.info.input_shape]);
      const [way, logits] = await this.#onwards(first.features, first.shape);
      features.push(way);
      answers.push(this.#left([first.logits, ...logits], this.bundle.info.exits!));
    }
    return { features, labels: targets, answers };
  }

  /** Return a sample's way from what the first exit reads on, and the logits that the segments beyond it give. */
  async #onwards(first: Float32Array, shape: readonly number[]): Promise<[Way, Logits]> {
    const [parts, logits]: [Float32Array[], Float32Array[]] = [[first], []];
    for (let at = 1; at < this.model.exits; at++) {
      const found = await this.model.segment(at, parts.at(-1)!, shape);
      parts.push(at < this.model.exits - 1 ? found.features : found.logits);
      logits.push(found.logits);
      shape = found.shape;
    }
    const way = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) (way.set(part, at), (at += part.length));
    return [way, logits];
  }

  /** Return the ways of the bundle's global samples. */
  async #waysOf(samples: Replay): Promise<readonly Way[]> {
    const known = this.#ways.get(samples);
    if (known) return known;
    const ways: Way[] = [];
    for (const row of samples.labels.keys()) ways.push((await this.#onwards(samples.features([row]), [1, ...samples.codec.shape]))[0]);
    this.#ways.set(samples, ways);
    return ways;
  }

  /** Return what an exit reads of some samples. */
  #read(ways: readonly Way[], at: number): Float32Array {
    const size = this.#sizes[at]!;
    const begin = this.#sizes.slice(0, at).reduce((a, b) => a + b, 0);
    const out = new Float32Array(ways.length * size);
    ways.forEach((way, i) => out.set(way.subarray(begin, begin + size), i * size));
    return out;
  }

  #final(way: Way): Float32Array {
    return way.subarray(way.length - this.bundle.info.labels.length);
  }

  /** Return the logits of every exit and the model's own, by the current weights. */
  async #logits(ways: readonly Way[]): Promise<Logits[]> {
    const logits: Float32Array[][] = ways.map(() => []);
    for (const [at, head] of this.#heads.entries()) {
      (await head.logits(this.#read(ways, at), ways.length, this.#now[at]!)).forEach((row, i) => logits[i]!.push(row));
    }
    return logits.map((own, i) => [...own, this.#final(ways[i]!)]);
  }

  #left(logits: Logits, { thresholds, temperatures, temperature }: Exits): Answered {
    const { loss } = this.bundle.info;
    const exit = leaving(logits.map((own, at) => confidenceOf(own, temperatures?.[at] ?? temperature ?? 1, loss, logits[at - 1])), thresholds);
    return { logits: logits[exit]!, exit };
  }

  override async answers(ways: readonly Way[]): Promise<Answered[]> {
    return (await this.#logits(ways)).map((logits) => this.#left(logits, this.#policy));
  }

  protected override async checkAnswers(): Promise<Answered[]> {
    return this.answers(await this.#waysOf(this.check));
  }

  async train(samples: NewSamples, watch: Watch = () => {}): Promise<number[]> {
    this.reset();
    const { loss } = this.bundle.info;
    const { heads, recipe } = this.#plan;
    const withheld = Math.min(MOST_SHARE, Math.max(SHARE, WANTED / samples.features.length));
    const apart = samples.places.map((place) => place < withheld);
    const own = [...apart.keys()].filter((row) => !apart[row]);
    const ways = [...own.map((row) => samples.features[row]!), ...(await this.#waysOf(this.replay))];
    const truths = [...own.map((row) => samples.labels[row]!), ...this.replay.labels];
    if (ways.length < 2) throw new TunerError(`${ways.length} photos are too few for the exits: keep more`);
    const targets = ways.map((way, i) => exitTargets(heads, this.#final(way), truths[i]!, loss));
    const skipped = ways.length % recipe.batchSize === 1 ? 1 - 1 / ways.length : 1; // a norm has no statistics of one
    const least = skipped * entropy(heads, targets, loss);
    const losses = new Array<number>(recipe.epochs).fill(0);
    const steps = this.#stepsOf(ways.length);
    let seen = 0;
    for (const [at, step] of this.#steps.entries()) {
      const random = randomOf(0);
      step.begin(this.#given[at]!);
      for (let epoch = 0, done = 0; epoch < recipe.epochs; epoch++) {
        const order = shuffled([...ways.keys()], random);
        let total = 0;
        for (let from = 0; from < order.length; from += recipe.batchSize) {
          const rows = order.slice(from, from + recipe.batchSize);
          if (rows.length === 1) continue;
          const batch = { features: this.#read(rows.map((row) => ways[row]!), at), labels: rows.flatMap((row) => targets[row]!), count: rows.length };
          total += (await step.step(batch, rateOf(this.#plan, done++, steps))) * rows.length;
          watch(++seen, steps * this.#steps.length);
        }
        losses[epoch]! += total / ways.length - least;
        if (!Number.isFinite(total)) throw new TunerError(`the loss became ${total} in epoch ${epoch + 1}`);
      }
      this.#now[at] = step.weights();
    }
    const judged = [...apart.keys()].filter((row) => apart[row]);
    if (judged.length >= LEAST) {
      const logits = await this.#logits(judged.map((row) => samples.features[row]!));
      this.#policy = calibrated(this.#policy, heads, logits, judged.map((row) => samples.labels[row]!), loss);
    }
    return losses;
  }

  #stepsOf(samples: number): number {
    return this.#plan.recipe.epochs * Math.ceil(samples / this.#plan.recipe.batchSize);
  }

  async expected(samples: number): Promise<number> {
    await this.#waysOf(this.replay);
    let seconds = 0;
    for (const [at, step] of this.#steps.entries()) {
      step.begin(this.#given[at]!);
      seconds += this.#stepsOf(samples + this.replay.length) * (await step.pace());
    }
    return seconds;
  }

  protected async logits(): Promise<Float32Array[]> {
    throw new TunerError("exits answer by the way that a sample takes");
  }

  protected override async written(): Promise<Map<string, Bytes>> {
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

  override async compare(written: Model): Promise<void> {
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
    const ways = await this.#waysOf(check);
    const { temperatures, thresholds } = calibrated(this.#policy, heads, await this.#logits(ways), check.labels, loss);
    const targets = ways.flatMap((way, i) => exitTargets(heads, this.#final(way), check.labels[i]!, loss));
    return { targets, calibrated: [...temperatures!, ...thresholds] };
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
