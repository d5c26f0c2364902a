/** Train a bundle again: its tail by steps, with or without adapters, or its head in closed form. */

import { type Bundle, type BundleInfo, FILE } from "./bundle.ts";
import { argmax, type Bytes, encode, sha256, TunerError } from "./bytes.ts";
import { Replay } from "./codec.ts";
import { Model, type Sample } from "./model.ts";
import { withWeights } from "./onnx.ts";
import { randomOf } from "./random.ts";
import type { Runtime } from "./session.ts";
import type { Weights } from "./step.ts";
import { tensorOf, writeTensors } from "./tensors.ts";

const TOLERANCE = 1e-3;
/** Formats of a bundle's training: of a tail by steps, of a tail with adapters, of a head in closed form. */
export const [TAIL, ADAPTERS, SOLVED] = [1, 3, 4] as const;

/** Called after every step with its number and the number of all steps. */
export type Watch = (step: number, steps: number) => void;

/** Features of new samples with their labels: computed once, however many models are trained on them. */
export interface NewSamples {
  readonly features: readonly Float32Array[];
  readonly labels: readonly number[];
}

/** What trains, whichever way. */
export abstract class Trainer {
  protected constructor(
    readonly bundle: Bundle,
    protected readonly model: Model,
    protected readonly replay: Replay,
    protected readonly check: Replay,
    protected weights: Weights,
  ) {}

  /** Open the trainer of a bundle. */
  static async open(bundle: Bundle, runtime: Runtime, model: Model): Promise<Trainer> {
    const { train, loss, exits } = bundle.info;
    if (!train) throw new TunerError("this bundle cannot learn: export it with --trainable");
    if (exits || ![TAIL, ADAPTERS, SOLVED].includes(train.format as 1) || loss !== "single-label") {
      throw new TunerError("this bundle learns in Python only: exits and several labels do not train in a browser yet");
    }
    const weights = (await bundle.tensors("weights.safetensors")).tensors;
    const own = new Map((train.weights ?? []).map((name) => [name, tensorOf({ tensors: weights, metadata: {} }, name)]));
    const samples = await Promise.all(
      ["train/replay.safetensors", "train/check.safetensors"].map(async (name) => Replay.read(await bundle.tensors(name))),
    );
    const parts = [bundle, model, samples[0]!, samples[1]!, own] as const;
    if (train.format === SOLVED) return (await import("./solving.ts")).SolvingTrainer.made(...parts);
    return (await import("./stepping.ts")).SteppingTrainer.made(runtime, ...parts);
  }

  /** Return what training reads of samples. */
  async prepare(samples: readonly Sample[], labels: readonly string[]): Promise<NewSamples> {
    const rows = labels.map((label) => this.bundle.info.labels.indexOf(label));
    const stray = labels[rows.indexOf(-1)];
    if (stray !== undefined) throw new TunerError(`the bundle has no label ${stray}: choose one that it has`);
    const features: Float32Array[] = [];
    for (const sample of samples) features.push(await this.model.features(sample));
    return { features, labels: rows };
  }

  /**
   * Train on new samples and the bundle's global ones, from the bundle's weights; return the mean loss of each epoch.
   *
   * A head in closed form is solved as if it had never had the samples `without`.
   */
  abstract train(samples: NewSamples, watch?: Watch, without?: readonly Float32Array[]): Promise<number[]>;

  /** Return the logits of the current weights. */
  protected abstract logits(features: Float32Array, count: number): Promise<Float32Array[]>;

  /** Return to the weights of the bundle. */
  abstract reset(): void;

  /** Return other files of the trained bundle than weights and model. */
  protected replaced(): Map<string, Bytes> {
    return new Map();
  }

  /** Return the logits of samples, by the current weights. */
  answersOf(features: Float32Array, count: number): Promise<Float32Array[]> {
    return this.logits(features, count);
  }

  /** Return the most probable label of each sample, by the current weights. */
  async answers(features: readonly Float32Array[]): Promise<number[]> {
    const all = new Float32Array(features.reduce((sum, row) => sum + row.length, 0));
    let at = 0;
    for (const row of features) (all.set(row, at), (at += row.length));
    return (await this.logits(all, features.length)).map(argmax);
  }

  /** Return whether each of the bundle's check samples is answered right; nothing where it brings none. */
  async checked(): Promise<boolean[] | undefined> {
    if (!this.check.length) return undefined;
    const logits = await this.logits(this.check.features([...this.check.labels.keys()]), this.check.length);
    return logits.map((row, i) => argmax(row) === this.check.labels[i]);
  }

  /** Return the trained bundle's files that differ from its parent's, with its own bundle.json. */
  async save(losses: readonly number[], samples: number, before: number | null, after: number | null): Promise<Map<string, Bytes>> {
    const of = new Map<string, Uint8Array>();
    for (const [name, { shape, data }] of this.weights) {
      if (shape.length) of.set(`tail.${name}`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    }
    const file = await this.bundle.tensors("weights.safetensors");
    for (const [name, value] of this.weights) file.tensors.set(name, value);
    const files = this.replaced();
    files.set("model.onnx", withWeights(await this.bundle.file("model.onnx"), of));
    files.set("weights.safetensors", writeTensors(file));
    const { info } = this.bundle;
    const hashes = { ...info.files };
    for (const [name, content] of files) hashes[name] = sha256(content);
    const scores = {
      untouched: info.scores?.untouched ?? {},
      before: { global_accuracy: before },
      after: { global_accuracy: after, losses, samples },
    };
    const made = new Date().toISOString().replace(/\.\d+/, "");
    const content = { ...info, made, scores, parent: this.bundle.identity, files: hashes } satisfies BundleInfo;
    return files.set(FILE, encode(JSON.stringify(content, null, 1)));
  }

  /** Check that a written model gives the logits of the trained tail. */
  async compare(written: Model): Promise<void> {
    const { input_shape: shape } = this.bundle.info;
    const random = randomOf(0);
    const sample = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => random() * 2 - 1);
    const [theirs] = await written.logits(sample);
    const [ours] = await this.logits(await this.model.features(sample), 1);
    const difference = Math.max(...ours!.map((value, i) => Math.abs(value - theirs![i]!)));
    if (!(difference <= TOLERANCE)) throw new TunerError(`the written model's logits differ by ${difference}: learn again`);
  }

  abstract release(): Promise<void>;
}

/** What a trainer is made of: bundle, model, global samples to train on and to check by, and its weights. */
export type Parts = readonly [Bundle, Model, Replay, Replay, Weights];
