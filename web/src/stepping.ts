/** Train a tail, or its adapters, by steps: on new samples, on a part of the user's earlier ones, and on global ones. */

import { ADAPTERS, type BundleInfo } from "./bundle.ts";
import { type Bytes, TunerError } from "./bytes.ts";
import type { Replay } from "./codec.ts";
import type { Earlier } from "./gate.ts";
import { Own } from "./own.ts";
import type { Sample } from "./model.ts";
import type { Plan } from "./plan.ts";
import { augmented, balanced, randomOf, shuffled } from "./random.ts";
import type { NewRows } from "./rows.ts";
import type { Runtime } from "./session.ts";
import { StepSession, Tail, type Weights } from "./step.ts";
import { classesOf, isRight } from "./target.ts";
import type { Tensor, TensorFile } from "./tensors.ts";
import { batchesOf, AT_ONCE, type NewSamples, type Parts, type Prepared, TailTrainer, type Watch } from "./trainer.ts";

const ORIGINAL = ".original";

/** Return the name of the weight that a tensor of an adapter is a part of; any other name as it is. */
function fusedName(name: string): string {
  const at = name.indexOf("parametrizations.");
  return at < 0 ? name : name.slice(0, at) + name.slice(at + 17).split(".")[0]!;
}

export class SteppingTrainer extends TailTrainer {
  #step!: StepSession;
  #tail!: Tail;
  #plan!: Plan;
  #given: Weights = new Map();
  #own!: Own;
  #new: Replay | undefined;
  /** Of labels that the bundle has just got; none otherwise. */
  #rows: NewRows | undefined;
  #adapters: { readonly initial: TensorFile; readonly merge: Tail } | undefined;

  static async made(runtime: Runtime, ...parts: Parts): Promise<SteppingTrainer> {
    const trainer = new SteppingTrainer(...parts);
    const [bundle] = parts;
    await trainer.load();
    trainer.#given = trainer.weights;
    trainer.#plan = await bundle.plan();
    trainer.#own = await Own.of(bundle, trainer.replay);
    trainer.#tail = await Tail.open(runtime, await bundle.file("train/tail.onnx"));
    if (bundle.info.train?.kind === ADAPTERS) {
      const merge = await Tail.open(runtime, await bundle.file("train/merge.onnx"));
      trainer.#adapters = { initial: await bundle.tensors("train/adapters.safetensors"), merge };
    }
    const step = await bundle.file("train/step.onnx");
    trainer.#step = await StepSession.open(runtime, step, trainer.#begin());
    if (bundle.from) {
      trainer.#rows = await (await import("./rows.ts")).NewRows.of(runtime, bundle, bundle.from);
      await trainer.#rows.requireSameStep(await bundle.from.file("train/step.onnx"), step, trainer.#begin());
    }
    return trainer;
  }

  /** Return what the step begins with. */
  #begin(): Weights {
    if (!this.#adapters) return this.weights;
    const { initial, merge } = this.#adapters;
    const begin = new Map([...this.weights, ...initial.tensors]);
    for (const { name } of merge.ports) if (name.endsWith(ORIGINAL)) begin.set(name, this.weights.get(fusedName(name))!);
    return begin;
  }

  override async prepare(samples: readonly Sample[], labels: readonly string[]): Promise<Prepared<Float32Array>> {
    const prepared = await super.prepare(samples, labels);
    this.#own.come(prepared.features, samples);
    return prepared;
  }

  async train(samples: NewSamples<Float32Array>, watch: Watch = () => {}): Promise<number[]> {
    this.reset();
    const { recipe, weight, balance, augment, operations } = this.#plan;
    const { codec } = this.replay;
    const records = samples.features.map((row) => codec.encode(row));
    this.#new = this.replay.emptied().extended(records, samples.labels, this.#own.marksOf(samples.features));
    const local = this.#own.before.extended(records, samples.labels);
    const mixed = local.extended(this.replay.records, this.replay.labels);
    if (this.#rows) this.weights = await this.#rows.solved(this.weights, samples, mixed);
    const random = randomOf(0);
    const steps = this.#steps(mixed.length);
    const losses: number[] = [];
    this.#step.begin(this.#begin());
    for (let epoch = 0, done = 0; epoch < recipe.epochs; epoch++) {
      const order = balance ? balanced(classesOf(mixed.labels), random) : shuffled([...mixed.labels.keys()], random);
      let total = 0;
      for (let at = 0; at < order.length; at += recipe.batchSize) {
        const rows = order.slice(at, at + recipe.batchSize);
        if (recipe.normsTrain && rows.length === 1 && order.length > 1) continue;
        const maps = augmented(mixed.features(rows), codec.shape, operations, augment, random);
        const weights = weight === 1 ? undefined : rows.map((row) => (row < local.length ? 1 : weight));
        const batch = { features: maps, labels: rows.flatMap((row) => mixed.labels[row]!), weights, count: rows.length };
        total += (await this.#step.step(batch, recipe.rate(done, steps))) * rows.length;
        watch(++done, steps);
      }
      losses.push(total / mixed.length);
      if (!Number.isFinite(total)) throw new TunerError(`the loss became ${total} in epoch ${epoch + 1}`);
    }
    this.weights = await this.#merged(this.#step.weights());
    return losses;
  }

  #steps(samples: number): number {
    return this.#plan.recipe.epochs * Math.ceil(samples / this.#plan.recipe.batchSize);
  }

  async expected(samples: number): Promise<number> {
    this.reset();
    this.#step.begin(this.#begin());
    return this.#steps(samples + this.#own.before.length + this.replay.length) * (await this.#step.pace());
  }

  async #merged(state: Weights): Promise<Weights> {
    if (!this.#adapters) return state;
    const values = await this.#adapters.merge.merged(state);
    const weights = new Map<string, Tensor>();
    for (const [name, value] of state) {
      if (fusedName(name) === name) weights.set(name, value);
      else if (name.endsWith(ORIGINAL)) weights.set(fusedName(name), { ...value, data: values.get(fusedName(name))!.slice() });
    }
    return weights;
  }

  override get earlier(): number {
    return this.#own.before.length;
  }

  override async earlierRight(): Promise<Earlier | undefined> {
    const { before } = this.#own;
    if (!before.length) return undefined;
    const right = async (weights: Weights): Promise<boolean[]> => {
      const logits: Float32Array[] = [];
      for (const rows of batchesOf(before.length, AT_ONCE)) logits.push(...(await this.#tail.logits(before.features(rows), rows.length, weights)));
      return logits.map((row, i) => isRight(row, before.labels[i]!, this.bundle.info.loss));
    };
    const came = new Set(this.#new?.labels);
    const others = before.labels.map((label) => typeof label === "number" && !came.has(label));
    return { old: await right(this.#given), new: await right(this.weights), others };
  }

  protected override described(): Partial<BundleInfo> {
    const own_samples = this.#new && this.#own.kept(this.#new)?.length;
    return own_samples === undefined ? {} : { train: { ...this.bundle.info.train!, own_samples } };
  }

  protected override replaced(): Map<string, Bytes> {
    return this.#new ? this.#own.written(this.#new) : new Map();
  }

  logits(features: Float32Array, count: number): Promise<Float32Array[]> {
    return this.#tail.logits(features, count, this.weights);
  }

  reset(): void {
    this.weights = this.#given;
  }

  async release(): Promise<void> {
    for (const one of [this.#step, this.#tail, this.#adapters?.merge, this.#rows]) await one?.release();
  }
}
