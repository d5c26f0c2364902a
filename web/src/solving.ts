/** Solve for a head in closed form: a round is one solution. */

import type { BundleInfo } from "./bundle.ts";
import { type Bytes, roundEven, TunerError } from "./bytes.ts";
import type { Earlier } from "./gate.ts";
import { apply, type LinearHead, type Settings, type Solution, unionHead } from "./solve.ts";
import type { Weights } from "./step.ts";
import { isRight, labelsOf, surprise, type Target } from "./target.ts";
import { floats, type Tensor, type TensorFile, tensorOf, writeTensors } from "./tensors.ts";
import { type Answered, type NewSamples, type Parts, TailTrainer, type Watch } from "./trainer.ts";

const SAME = 2;
const LARGEST_CODE = 2 ** 14;

interface Coded {
  readonly code: Float64Array;
  readonly label: Target;
}

/** Return whether codes are of one sample. */
function isSame(one: Float64Array, two: Float64Array): boolean {
  return one.every((value, f) => Math.abs(value - two[f]!) <= SAME);
}

/** Solves for the head. */
export class SolvingTrainer extends TailTrainer {
  #file!: TensorFile;
  #given!: LinearHead;
  #settings!: Settings;
  #unit = 1;
  #own: Coded[] = [];
  #before: Coded[] = [];
  #left: readonly Float64Array[] = [];
  #known!: readonly Float64Array[];
  #first!: Weights;

  static async made(...parts: Parts): Promise<SolvingTrainer> {
    const trainer = new SolvingTrainer(...parts);
    await trainer.load();
    trainer.#first = trainer.weights;
    const file = (trainer.#file = await parts[0].tensors("train/solved.safetensors"));
    const about = JSON.parse(file.metadata["about"] ?? "{}") as { format?: number; step: number; settings: Settings };
    if (about.format !== 2 || trainer.weights.size !== 2) throw new TunerError("the solved head is of another version");
    trainer.#unit = about.step;
    trainer.#settings = about.settings;
    const [weight, bias] = ["given.weight", "given.bias"].map((name) => Float64Array.from(floats(tensorOf(file, name))));
    trainer.#given = { weight: weight!, bias: bias! };
    const size = weight!.length / bias!.length;
    const codes = Float64Array.from(tensorOf(file, "codes").data as Int16Array);
    trainer.#before = labelsOf(tensorOf(file, "labels")).map((label, i) => ({
      code: codes.subarray(i * size, (i + 1) * size),
      label,
    }));
    const features = trainer.replay.features([...trainer.replay.labels.keys()]);
    trainer.#known = trainer.replay.labels.map((_, i) => {
      return trainer.#coded(features.subarray(i * size, (i + 1) * size)).map((code) => code * trainer.#unit);
    });
    return trainer;
  }

  #coded(features: Float32Array): Float64Array {
    return Float64Array.from(features, (value) => {
      return Math.min(LARGEST_CODE, Math.max(-LARGEST_CODE, roundEven(value / this.#unit)));
    });
  }

  async train(samples: NewSamples<Float32Array>, watch: Watch = () => {}, without: readonly Float32Array[] = []): Promise<number[]> {
    this.#own = [...this.#before];
    const drop = (code: Float64Array): void => {
      this.#own = this.#own.filter((one) => !isSame(one.code, code));
    };
    samples.features.forEach((row, i) => {
      const code = this.#coded(row);
      drop(code);
      this.#own.push({ code, label: samples.labels[i]! });
    });
    without.forEach((row) => drop(this.#coded(row)));
    const { head, left } = this.#solved(this.#own);
    this.#left = left;
    const [weight, bias] = [...this.weights].map(([name, { shape }], i) => {
      const data = Float32Array.from(i ? head.bias : head.weight);
      return [name, { type: "F32", shape, data }] satisfies [string, Tensor];
    });
    this.weights = new Map([weight!, bias!]);
    watch(1, 1);
    const rounded = this.#head();
    const loss = this.#own.reduce((sum, own) => sum + surprise(apply(rounded, this.#features(own)), own.label), 0);
    return [loss / this.#own.flatMap(({ label }) => label).length];
  }

  #features({ code }: Coded): Float64Array {
    return code.map((value) => value * this.#unit);
  }

  #solved(own: readonly Coded[]): Solution {
    const local = { features: own.map((one) => this.#features(one)), labels: own.map(({ label }) => label) };
    return unionHead(this.#given, local, { features: this.#known, labels: this.replay.labels }, this.#settings);
  }

  override get earlier(): number {
    return this.#before.length;
  }

  override get leavesOut(): boolean {
    return true;
  }

  override leftOut(samples: readonly Float32Array[]): Answered[] {
    const rows = samples.map((row) => this.#coded(row)).map((code) => this.#own.findIndex((one) => isSame(one.code, code)));
    return rows.map((row) => ({ logits: Float32Array.from(this.#left[row]!), exit: 0 }));
  }

  /** Each is answered by a head without it. */
  override async earlierRight(): Promise<Earlier | undefined> {
    const still = this.#before.filter((one) => this.#own.includes(one)); // the others have a newer label
    if (!still.length) return undefined;
    const before = this.#solved(this.#before).left;
    const right = (logits: Float64Array, { label }: Coded): boolean => isRight(Float32Array.from(logits), label, this.bundle.info.loss);
    return {
      old: still.map((one) => right(before[this.#before.indexOf(one)]!, one)),
      new: still.map((one) => right(this.#left[this.#own.indexOf(one)]!, one)),
      others: still.map(() => false),
    };
  }

  async logits(features: Float32Array, count: number): Promise<Float32Array[]> {
    const size = features.length / count;
    const head = this.#head();
    return Array.from({ length: count }, (_, i) => Float32Array.from(apply(head, features.subarray(i * size, (i + 1) * size))));
  }

  #head(): LinearHead {
    const [weight, bias] = [...this.weights.values()].map(({ data }) => Float64Array.from(data as Float32Array));
    return { weight: weight!, bias: bias! };
  }

  protected override described(): Partial<BundleInfo> {
    return { train: { ...this.bundle.info.train!, own_samples: this.#own.length } };
  }

  protected override replaced(): Map<string, Bytes> {
    const size = this.#given.weight.length / this.#given.bias.length;
    const codes = new Int16Array(this.#own.length * size);
    this.#own.forEach(({ code }, i) => codes.set(code, i * size));
    const tensors = new Map(this.#file.tensors);
    tensors.set("codes", { type: "I16", shape: [this.#own.length, size], data: codes });
    const labels = this.#own.map(({ label }) => label);
    const { shape, type } = tensorOf(this.#file, "labels");
    const data = type === "U8" ? Uint8Array.from(labels.flat()) : BigInt64Array.from(labels.flat(), BigInt);
    tensors.set("labels", { type, shape: [labels.length, ...shape.slice(1)], data });
    return new Map([["train/solved.safetensors", writeTensors({ tensors, metadata: this.#file.metadata })]]);
  }

  async expected(): Promise<number> {
    return 0; // a second or two
  }

  reset(): void {
    this.weights = this.#first;
  }

  async release(): Promise<void> {}
}
