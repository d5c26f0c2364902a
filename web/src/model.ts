/** Predict: one model, or a chain of segments that easy samples leave early. */

import type { InferenceSession } from "onnxruntime-common";
import type { Bundle, BundleInfo, InputSpec } from "./bundle.ts";
import { argmax, joined, product, TunerError } from "./bytes.ts";
import { normalise } from "./image.ts";
import { floatTensor, openSession, run, type Runtime } from "./session.ts";

/**
 * A sample as the model sees it, before normalisation: bytes [3, size, size] of a photo, else numbers. A clip of a sound is
 * all of its patches, one after the other: see `partsOf`.
 */
export type Sample = Uint8Array | Float32Array;

export interface Prediction {
  /** The most probable label; of a regression the values, separated by `|`. */
  readonly label: string;
  /** Its probability; NaN of a regression. */
  readonly probability: number;
  /** The exit that it left at; the last is the model's own output. */
  readonly exit: number;
  readonly seconds: number;
  /** Where a sample may have several labels: all over their thresholds, the most probable first. */
  readonly labels?: readonly (readonly [string, number])[];
  /** Of a regression: each output with its value, in the unit of the targets. */
  readonly values?: readonly (readonly [string, number])[];
  /** Of all labels; of a regression the values. */
  readonly probabilities: Float64Array;
  /** How unlike the user's samples it is, where that was asked for: above 1, it is none of the user's classes. */
  readonly unknown?: number;
  /** The label; or `unknown`. */
  readonly answer: string;
}

/** Nodes that are appended to a model to give the distance to the user's samples, and their output. */
const [UNKNOWN, DISTANCE] = ["unknown.onnx", "answer.distance"];

/** Confidence of an exit of a regression that has none before it: above the threshold 0 alone. */
const LEAST = 1e-6;

/** Return softmax, or sigmoids where a sample may have several labels. */
export function probabilities(logits: ArrayLike<number>, temperature: number, multi: boolean): Float64Array {
  const scaled = Float64Array.from(logits, (value) => value / temperature);
  if (multi) return scaled.map((value) => 1 / (1 + Math.exp(-value)));
  const most = scaled.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = scaled.map((value) => Math.exp(value - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((value) => value / sum);
}

/** Return how sure an exit is of its logits; of a regression by those of the exit before it. */
export function confidenceOf(logits: Float32Array, temperature: number, loss: string, before?: Float32Array): number {
  if (loss === "regression") return agreement(logits, before);
  const multi = loss === "multi-label";
  return certainty(probabilities(logits, temperature, multi), multi);
}

function certainty(found: Float64Array, multi: boolean): number {
  return multi ? found.reduce((sum, p) => sum + Math.max(p, 1 - p), 0) / found.length : Math.max(...found);
}

/** Return how sure an exit of a regression is: by how near its logits are to those of the exit before it. */
function agreement(logits: Float32Array, before?: Float32Array): number {
  if (!before) return LEAST;
  const distance = logits.reduce((most, value, i) => Math.max(most, Math.abs(value - before[i]!)), 0);
  return Math.max(Math.exp(-distance), LEAST);
}

/** Return what the probabilities of all labels say; of a regression, its values. */
export function predictionOf(info: BundleInfo, found: Float64Array, exit: number, seconds: number): Prediction {
  const made = { exit, seconds, probabilities: found };
  if (info.targets) {
    const text = found.join("|");
    return { ...made, label: text, answer: text, probability: NaN, values: info.labels.map((label, i) => [label, found[i]!] as const) };
  }
  const best = argmax(found);
  const label = info.labels[best]!;
  const prediction = { ...made, label, answer: label, probability: found[best]! };
  if (info.loss !== "multi-label") return prediction;
  const over = info.labels
    .map((name, i) => [name, found[i]!, info.label_thresholds?.[i] ?? 0.5] as const)
    .filter(([, probability, threshold]) => probability >= threshold)
    .sort(([, one], [, two]) => two - one);
  return { ...prediction, labels: over.map(([name, probability]) => [name, probability] as const) };
}

/** Return the parts that the model reads one by one: the patches of a clip; else the sample alone. */
export function partsOf(sample: Sample, { input_shape: shape }: BundleInfo): Sample[] {
  const size = product(shape);
  if (sample.length <= size || sample.length % size) return [sample];
  return Array.from({ length: sample.length / size }, (_, i) => sample.subarray(i * size, (i + 1) * size));
}

/** Return arrays one after the other in one. */
export function concatenated(parts: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) (all.set(part, at), (at += part.length));
  return all;
}

/** A bundle, ready to predict. */
export class Model {
  private constructor(
    readonly bundle: Bundle,
    private readonly runtime: Runtime,
    private readonly sessions: readonly InferenceSession[],
    /** Largest distance to the user's samples that is accepted, where it is asked for. */
    private readonly farthest?: number,
  ) {}

  /** Open a bundle; with `unknown`, predictions tell samples that are none of the user's classes. */
  static async open(bundle: Bundle, runtime: Runtime, unknown = false): Promise<Model> {
    const names = bundle.info.exits?.segments ?? ["model.onnx"];
    const { unknown: told } = bundle.info;
    if (unknown && (told?.format !== 1 || names.length > 1)) throw new TunerError("this bundle cannot tell which samples are unknown: export it again");
    const sessions: InferenceSession[] = [];
    for (const name of names) {
      const content = await bundle.file(name);
      sessions.push(await openSession(runtime, unknown ? joined(content, await bundle.file(UNKNOWN)) : content));
    }
    return new Model(bundle, runtime, sessions, unknown ? told!.threshold : undefined);
  }

  get exits(): number {
    return this.sessions.length;
  }

  /** Predict one sample. */
  async predict(sample: Sample): Promise<Prediction> {
    const { info } = this.bundle;
    const { targets } = info;
    const multi = info.loss === "multi-label";
    const began = performance.now();
    let features = this.input(sample);
    let shape: readonly number[] = [1, ...info.input_shape];
    let before: Float32Array | undefined;
    for (let exit = 0; ; exit++) {
      const last = exit === this.sessions.length - 1;
      const outputs = await this.segment(exit, features, shape);
      const temperature = info.exits?.temperatures[exit] ?? 1;
      const found = targets
        ? Float64Array.from(outputs.logits, (value, i) => targets.mean[i]! + targets.std[i]! * value)
        : probabilities(outputs.logits, temperature, multi);
      if (found.some(Number.isNaN)) throw new TunerError(`segment ${exit} gives logits that are not numbers: export again`);
      const sure = targets ? agreement(outputs.logits, before) : certainty(found, multi);
      if (!last && !(sure > info.exits!.thresholds[exit]!)) {
        [features, shape, before] = [outputs.features, outputs.shape, outputs.logits];
        continue;
      }
      const prediction = predictionOf(info, found, exit, (performance.now() - began) / 1000);
      if (outputs.distance === undefined) return prediction;
      const unknown = outputs.distance / this.farthest!;
      return { ...prediction, unknown, answer: unknown > 1 ? "unknown" : prediction.label };
    }
  }

  /** Return the logits of each exit. */
  async logits(sample: Sample): Promise<Float32Array[]> {
    const logits: Float32Array[] = [];
    let features = this.input(sample);
    let shape: readonly number[] = [1, ...this.bundle.info.input_shape];
    for (let exit = 0; exit < this.sessions.length; exit++) {
      const outputs = await this.segment(exit, features, shape);
      logits.push(outputs.logits);
      [features, shape] = [outputs.features, outputs.shape];
    }
    return logits;
  }

  /** Return what the frozen blocks make of a sample, and the whole model's logits. */
  async features(sample: Sample): Promise<[Float32Array, Float32Array]> {
    const input = this.input(sample);
    const session = this.sessions[0]!;
    const feeds = { [session.inputNames[0]!]: floatTensor(this.runtime, input, [1, ...this.bundle.info.input_shape]) };
    const outputs = await run(session, feeds, session.outputNames);
    return [(outputs["features"]?.data ?? input) as Float32Array, outputs["logits"]!.data as Float32Array];
  }

  async release(): Promise<void> {
    for (const session of this.sessions) await session.release();
  }

  input(sample: Sample): Float32Array {
    const { input_shape: shape, input, name } = this.bundle.info;
    if (sample.length !== product(shape)) {
      throw new TunerError(`${name} takes samples of shape [${shape.join(", ")}], got ${sample.length} numbers`);
    }
    if (sample instanceof Float32Array && !sample.every(Number.isFinite)) {
      throw new TunerError(`${name} takes finite numbers, but a sample has others: leave it out`);
    }
    return normalise(sample, shape[0]!, input satisfies InputSpec);
  }

  /** Return what a segment makes of a sample: its logits, and what the next segment reads. */
  async segment(
    exit: number,
    features: Float32Array,
    shape: readonly number[],
  ): Promise<{ logits: Float32Array; features: Float32Array; shape: readonly number[]; distance?: number }> {
    const last = exit === this.sessions.length - 1;
    const session = this.sessions[exit]!;
    const feeds = { [session.inputNames[0]!]: floatTensor(this.runtime, features, shape) };
    const measures = last && this.farthest !== undefined;
    const outputs = await run(session, feeds, [...(last ? [] : ["features"]), "logits", ...(measures ? [DISTANCE] : [])]);
    const logits = outputs["logits"]!.data as Float32Array;
    if (logits.length !== this.bundle.info.labels.length) {
      throw new TunerError(`segment ${exit} gives ${logits.length} logits: export again`);
    }
    const following = outputs["features"];
    const made = { logits, features: (following?.data ?? features) as Float32Array, shape: following?.dims ?? shape };
    return measures ? { ...made, distance: Number(outputs[DISTANCE]!.data[0]) } : made;
  }
}
