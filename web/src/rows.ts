/**
 * Rows of new labels in the head of a trained tail. Each is a gate between its photos and all others, solved for at once in
 * the scale of the other rows, which stay; training then moves it like any other (`tuner_labels.tails` in Python).
 */

import type { Bundle } from "./bundle.ts";
import { argmax, type Bytes, product, roundEven, TunerError } from "./bytes.ts";
import type { Replay } from "./codec.ts";
import { headOf } from "./labels.ts";
import { concatenated } from "./model.ts";
import { randomOf } from "./random.ts";
import { resized } from "./resize.ts";
import type { Runtime } from "./session.ts";
import { type LinearHead, type Solution, spaced, unionHead } from "./solve.ts";
import { StepSession, Tail, type Weights } from "./step.ts";
import type { Target } from "./target.ts";
import type { Tensor } from "./tensors.ts";
import { AT_ONCE, batchesOf } from "./trainer.ts";

/** Least factor of the trained rows, by which a new row is divided. */
const LEAST_FACTOR = 0.05;
/** Largest share of the other samples that a new label may take; and the share of its own that is to be found. */
const [MOST_LOST, LEAST_FOUND] = [0.01, 0.7];
/** Factor by which an offset is larger than it needs to be, so that rounding to float32 takes none. */
const LARGER = 1.001;
/** Largest difference between what the steps compute, as a share of the largest value. */
const TOLERANCE = 1e-3;
const LARGEST_CODE = 2 ** 14;
/** Most other samples that a row is solved from, at equal distances: a round solves for it once for each fold. */
const MOST_OTHERS = 1000;
const MOST_FEATURES = 2048;

export class NewRows {
  /** What enters the head, of stored samples by their record. */
  readonly #stored = new Map<Uint8Array, Float32Array>();

  private constructor(
    private readonly runtime: Runtime,
    /** Names of the head's weight and bias. */
    private readonly names: readonly string[],
    /** Number of the labels that the bundle had. */
    private readonly first: number,
    private readonly body: Tail,
    /** A head by which the tail's logits are what enters the head. */
    private readonly identity: Weights,
  ) {}

  /** Open what solves for the rows that a bundle has got. */
  static async of(runtime: Runtime, bundle: Bundle, from: Bundle): Promise<NewRows> {
    const names = await headOf(bundle);
    const [weight, bias] = names as [string, string];
    const size = (await bundle.tensors("weights.safetensors")).tensors.get(weight)!.shape[1]!;
    if (size > MOST_FEATURES) throw new TunerError(`a new label takes a head of at most ${MOST_FEATURES} features, but it has ${size}: export a trial whose head is solved for`);
    const axes = new Map([["logits", -1], [weight, 0], [bias, 0]] as const);
    const body = await Tail.open(runtime, resized(await bundle.file("train/tail.onnx"), { count: size, axes }));
    const data = new Float32Array(size * size);
    for (let f = 0; f < size; f++) data[f * size + f] = 1;
    const identity = [[weight, tensor(data, [size, size])], [bias, tensor(new Float32Array(size), [size])]] as const;
    return new NewRows(runtime, names, from.info.labels.length, body, new Map(identity));
  }

  /** Check that a step of more labels trains as it did what both have: no sample gets any of the others yet. */
  async requireSameStep(before: Bytes, after: Bytes, begin: Weights): Promise<void> {
    const old = new Map(begin);
    for (const name of this.names) {
      const { shape, data } = begin.get(name)!;
      const rest = shape.slice(1);
      old.set(name, tensor((data as Float32Array<ArrayBuffer>).slice(0, this.first * product(rest)), [this.first, ...rest]));
    }
    const sessions: StepSession[] = [];
    for (const [content, weights] of [[before, old], [after, begin]] as const) {
      sessions.push(await StepSession.open(this.runtime, content, weights, (out) => out.fill(0.5)));
    }
    const random = randomOf(1);
    const count = sessions[0]!.batchSize;
    const features = Float32Array.from({ length: product(sessions[0]!.only("input").shape) }, () => random() * 2 - 1);
    const batch = { features, labels: Array.from({ length: count }, (_, i) => i % this.first), count };
    const losses = [await sessions[0]!.step(batch, 1e-3), await sessions[1]!.step(batch, 1e-3)];
    const differs = (one: ArrayLike<number | bigint>, other: ArrayLike<number | bigint>): boolean => {
      let [size, apart] = [1e-6, 0];
      for (let i = 0; i < one.length; i++) {
        size = Math.max(size, Math.abs(Number(one[i])));
        apart = Math.max(apart, Math.abs(Number(one[i]) - Number(other[i])));
      }
      return !(apart <= TOLERANCE * size);
    };
    const others = [...sessions[0]!.values].filter(([name, value]) => differs(value, sessions[1]!.values.get(name)!));
    for (const session of sessions) await session.release();
    if (others.length || differs([losses[0]!], [losses[1]!])) throw new TunerError("the training step of this bundle cannot be given another label: give its photos one that the bundle has, or export a trial whose head is solved for");
  }

  /** Return weights whose new rows are solved for, from new samples of each and all samples of the labels before it. */
  async solved(weights: Weights, samples: { readonly features: readonly Float32Array[]; readonly labels: readonly Target[] }, all: Replay): Promise<Weights> {
    const [weight, bias] = this.names.map((name) => Float32Array.from(weights.get(name)!.data as Float32Array)) as [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>];
    const size = weight.length / bias.length;
    for (let row = this.first; row < bias.length; row++) {
      const own = samples.features.filter((_, i) => samples.labels[i] === row);
      const before = [...all.labels.keys()].filter((i) => (all.labels[i] as number) < row);
      const others = spaced(before.length, MOST_OTHERS).map((i) => before[i]!);
      if (!own.length) continue;
      if (!others.length) throw new TunerError("there are no samples that a new label could be told from: label some photos with another one");
      const given = { weight: Float64Array.from(weight.subarray(0, (row + 1) * size)).fill(0, row * size), bias: Float64Array.from(bias.subarray(0, row + 1)).fill(0, row) };
      const added = await this.body.logits(concatenated(own), own.length, new Map([...weights, ...this.identity]));
      const known = others.map((i) => all.labels[i] as number);
      const head = solvedRow(given, added, await this.#features(weights, all, others), known);
      weight.set(head.weight, row * size);
      bias[row] = head.bias[0]!;
    }
    const [one, two] = this.names as [string, string];
    return new Map([...weights, [one, tensor(weight, [bias.length, size])], [two, tensor(bias, [bias.length])]]);
  }

  /** Return what enters the head of stored samples; they are asked for again and again, each fold without some others. */
  async #features(weights: Weights, all: Replay, rows: readonly number[]): Promise<Float32Array[]> {
    const missing = rows.filter((row) => !this.#stored.has(all.records[row]!));
    for (const places of batchesOf(missing.length, AT_ONCE)) {
      const some = places.map((place) => missing[place]!);
      const found = await this.body.logits(all.features(some), some.length, new Map([...weights, ...this.identity]));
      some.forEach((row, i) => this.#stored.set(all.records[row]!, found[i]!));
    }
    return rows.map((row) => this.#stored.get(all.records[row]!)!);
  }

  release(): Promise<void> {
    return this.body.release();
  }
}

/** Return the last row of a head, by the features of its samples and of others. */
function solvedRow(given: LinearHead, added: readonly Float32Array[], others: readonly Float32Array[], labels: readonly number[]): LinearHead {
  const last = given.bias.length - 1;
  const largest = [...added, ...others].reduce((most, row) => row.reduce((one, value) => Math.max(one, Math.abs(value)), most), 0);
  const unit = largest > 0 ? 2 ** Math.ceil(Math.log2(largest / LARGEST_CODE)) : 1;
  const coded = (row: Float32Array): Float64Array => Float64Array.from(row, (value) => roundEven(value / unit) * unit);
  const settings = { ridge: 100, gate_ridge: 100, local_weight: 1 / new Set(labels).size, scores: "ridge", gate: "soft" };
  const solution = unionHead(given, { features: added.map(coded), labels: added.map(() => last) }, { features: others.map(coded), labels }, settings);
  const factor = Math.max(solution.factor, LEAST_FACTOR);
  const { weight, bias } = solution.head;
  const size = weight.length / bias.length;
  return { weight: weight.slice(last * size).map((value) => value / factor), bias: Float64Array.of((bias[last]! - heldBack(solution, labels)) / factor) };
}

/**
 * Return how much a new row's offset is lowered, so that it takes at most `MOST_LOST` of the others. Where a label has no
 * sample, nobody sees what it loses: then as far as `LEAST_FOUND` of the new samples are still found.
 */
function heldBack({ left, knownLeft }: Solution, labels: readonly number[]): number {
  const last = left[0]!.length - 1;
  const above = knownLeft().flatMap((row, i) => (argmax(row.subarray(0, last)) === labels[i] ? [row[last]! - row[labels[i]!]!] : [])).sort((one, two) => two - one);
  const taken = (above[Math.floor(MOST_LOST * labels.length)] ?? 0) * LARGER;
  const own = left.map((row) => row[last]! - Math.max(...row.subarray(0, last))).sort((one, two) => one - two);
  const spare = own[Math.floor((1 - LEAST_FOUND) * (own.length - 1))]! / LARGER;
  return Math.max(0, taken, new Set(labels).size === last ? 0 : spare);
}

function tensor(data: Float32Array<ArrayBuffer>, shape: readonly number[]): Tensor {
  return { type: "F32", shape, data };
}
