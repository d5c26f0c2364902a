/** Train a bundle again: its tail by steps, with or without adapters, its head in closed form, or its exits. */

import { type Bundle, type BundleInfo, FILE } from "./bundle.ts";
import { type Bytes, digest, encode, TunerError } from "./bytes.ts";
import type { Replay } from "./codec.ts";
import type { Earlier } from "./gate.ts";
import { concatenated, type Model, type Sample } from "./model.ts";
import { withWeights } from "./onnx.ts";
import { randomOf } from "./random.ts";
import type { Weights } from "./step.ts";
import { isRight, scoreOf, type Target, targetOf } from "./target.ts";
import { tensorOf, writeTensors } from "./tensors.ts";

/** Largest difference of logits that a written model may have. */
export const TOLERANCE = 1e-3;
const WEIGHTS = "weights.safetensors";
/** Check samples that are decoded at once. */
export const AT_ONCE = 64;

/** Called after every step with its number and the number of all steps. */
export type Watch = (step: number, steps: number) => void;

/** What new samples become before training, with their labels: computed once, however many models are trained on them. */
export interface NewSamples<F> {
  readonly features: readonly F[];
  readonly labels: readonly Target[];
  /** Place of each in [0, 1), by its content: some set the thresholds of exits in every round, and train nothing. */
  readonly places: readonly number[];
}

/** What a model answers to a sample: logits, and the exit that it leaves at; 0 where there are none. */
export interface Answered {
  readonly logits: Float32Array;
  readonly exit: number;
}

/** What training reads of samples, and what the model in use answers to each. */
export interface Prepared<F> extends Omit<NewSamples<F>, "places"> {
  readonly answers: readonly Answered[];
}

/** Answers to the check samples: whether each is right, and their score; see `scoreOf`. */
export interface Checked {
  readonly right: readonly boolean[];
  readonly score: number;
}

/** What trains, whichever way, on samples as `F`. */
export abstract class Trainer<F = unknown> {
  protected constructor(
    readonly bundle: Bundle,
    protected readonly model: Model,
    protected readonly replay: Replay,
    protected readonly check: Replay,
  ) {}

  /** Return what training reads of samples, and what the model in use answers to each. */
  abstract prepare(samples: readonly Sample[], labels: readonly string[]): Promise<Prepared<F>>;

  /** Return the seconds that training on so many samples is going to take here; the weights are those of the bundle then. */
  abstract expected(samples: number): Promise<number>;

  /**
   * Train on new samples and the bundle's global ones, from the bundle's weights; return the mean loss of each epoch.
   *
   * A head in closed form is solved as if it had never had the samples `without`.
   */
  abstract train(samples: NewSamples<F>, watch?: Watch, without?: readonly F[]): Promise<number[]>;

  /** Number of the user's earlier samples that training reads. */
  get earlier(): number {
    return 0;
  }

  /** Return how the earlier samples are answered, after training; nothing where there are none. */
  async earlierRight(): Promise<Earlier | undefined> {
    return undefined;
  }

  /** Whether one training also gives the answer to each sample by a model without it. */
  get leavesOut(): boolean {
    return false;
  }

  /** Return the answer to each of these samples, which were trained on, by a model without it; see `leavesOut`. */
  leftOut(_samples: readonly F[]): Answered[] {
    return [];
  }

  /** Return to the weights of the bundle. */
  abstract reset(): void;

  /** Return the trained bundle's files that differ from its parent's, but for bundle.json. */
  protected abstract written(): Promise<Map<string, Bytes>>;

  /** Return what the trained bundle says of itself in another way than its parent. */
  protected described(): Partial<BundleInfo> {
    return {};
  }

  /** Return the answer to each sample, by the current weights. */
  abstract answers(samples: readonly F[]): Promise<Answered[]>;

  /** Return the logits that the bundle's check samples are answered with, by the current weights. */
  protected abstract checkLogits(): Promise<Float32Array[]>;

  /** Return how the bundle's check samples are answered; nothing where it brings none. */
  async checked(): Promise<Checked | undefined> {
    const { labels, length } = this.check;
    if (!length) return undefined;
    const logits = await this.checkLogits();
    const { loss } = this.bundle.info;
    const right = logits.map((row, i) => isRight(row, labels[i]!, loss));
    return { right, score: scoreOf(logits, labels, right, loss) };
  }

  /** Return the trained bundle's files that differ from its parent's, with its own bundle.json. */
  async save(losses: readonly number[], samples: number, before: number | null, after: number | null): Promise<Map<string, Bytes>> {
    const files = await this.written();
    const { unknown, ...info } = this.bundle.info;
    const hashes: Record<string, string> = { ...info.files };
    if (unknown) delete hashes["unknown.onnx"]; // what it was measured on is no longer what the head reads
    for (const [name, content] of files) hashes[name] = await digest(content);
    const scores = {
      untouched: info.scores?.untouched ?? {},
      before: { global_accuracy: before },
      after: { global_accuracy: after, losses, samples },
    };
    const made = new Date().toISOString().replace(/\.\d+/, "");
    const content = { ...info, ...this.described(), made, scores, parent: this.bundle.identity, files: hashes } satisfies BundleInfo;
    return files.set(FILE, encode(JSON.stringify(content, null, 1)));
  }

  /** Check that a written model gives the logits that were trained. */
  abstract compare(written: Model): Promise<void>;

  abstract release(): Promise<void>;
}

/** What trains the part of a model behind its frozen blocks, on what these give. */
export abstract class TailTrainer extends Trainer<Float32Array> {
  protected weights: Weights = new Map();

  /** Read the weights of the tail. */
  protected async load(): Promise<void> {
    const file = await this.bundle.tensors(WEIGHTS);
    this.weights = new Map(this.bundle.info.train!.weights?.map((name) => [name, tensorOf(file, name)]));
  }

  async prepare(samples: readonly Sample[], labels: readonly string[]): Promise<Prepared<Float32Array>> {
    const targets = labels.map((label) => targetOf(label, this.bundle.info));
    const found: [Float32Array, Float32Array][] = [];
    for (const sample of samples) found.push(await this.model.features(sample));
    return { features: found.map(([features]) => features), labels: targets, answers: found.map(([, logits]) => ({ logits, exit: 0 })) };
  }

  /** Return the logits of samples, by the current weights. */
  abstract logits(features: Float32Array, count: number): Promise<Float32Array[]>;

  async answers(samples: readonly Float32Array[]): Promise<Answered[]> {
    return (await this.logits(concatenated(samples), samples.length)).map((logits) => ({ logits, exit: 0 }));
  }

  protected async checkLogits(): Promise<Float32Array[]> {
    const logits: Float32Array[] = [];
    for (const rows of batchesOf(this.check.length, AT_ONCE)) logits.push(...(await this.logits(this.check.features(rows), rows.length)));
    return logits;
  }

  /** Return other files of the trained bundle than weights and model. */
  protected replaced(): Map<string, Bytes> {
    return new Map();
  }

  protected async written(): Promise<Map<string, Bytes>> {
    const of = new Map<string, Uint8Array>();
    for (const [name, { shape, data }] of this.weights) {
      if (shape.length) of.set(`tail.${name}`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    }
    const file = await this.bundle.tensors(WEIGHTS);
    for (const [name, value] of this.weights) file.tensors.set(name, value);
    const files = this.replaced();
    files.set("model.onnx", withWeights(await this.bundle.file("model.onnx"), of));
    return files.set(WEIGHTS, writeTensors(file));
  }

  async compare(written: Model): Promise<void> {
    const { input_shape: shape } = this.bundle.info;
    const random = randomOf(0);
    const sample = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => random() * 2 - 1);
    const [theirs] = await written.logits(sample);
    const [ours] = await this.logits((await this.model.features(sample))[0], 1);
    const difference = Math.max(...ours!.map((value, i) => Math.abs(value - theirs![i]!)));
    if (!(difference <= TOLERANCE)) throw new TunerError(`the written model's logits differ by ${difference}: learn again`);
  }
}

/** Return the numbers of so many rows, some at a time. */
export function batchesOf(count: number, size: number): number[][] {
  return Array.from({ length: Math.ceil(count / size) }, (_, batch) => {
    return Array.from({ length: Math.min(size, count - batch * size) }, (_, i) => batch * size + i);
  });
}

/** What a trainer is made of: bundle, model, and global samples to train on and to check by. */
export type Parts = readonly [Bundle, Model, Replay, Replay];
