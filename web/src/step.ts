/** The training step: an ONNX file that takes weights and gives their next values. */

import type { InferenceSession, Tensor as OrtTensor } from "onnxruntime-common";
import { type Bytes, product, TunerError } from "./bytes.ts";
import { inputShapes, metadataOf } from "./onnx.ts";
import { type Random, randomOf } from "./random.ts";
import { openSession, run, type Feeds, type Runtime } from "./session.ts";
import type { Data, Tensor } from "./tensors.ts";

export interface Port {
  readonly name: string;
  readonly kind: string;
  readonly shape: readonly number[];
  readonly dtype: string;
}

export type Weights = ReadonlyMap<string, Tensor>;

/** Fills the noise of a dropout: uniform in [0, 1). */
export type Noise = (out: Float32Array, port: number, step: number) => void;

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array } as const;
const NAMES: Readonly<Record<string, Tensor["type"]>> = { float32: "F32", float64: "F64", int64: "I64", int32: "I32" };

/** A file whose inputs are described in its metadata: a step, a tail, a merge. */
class Described {
  protected constructor(
    protected readonly runtime: Runtime,
    readonly session: InferenceSession,
    readonly ports: readonly Port[],
    protected readonly updates: Readonly<Record<string, string>>,
    private readonly shapes: ReadonlyMap<string, readonly number[]>,
  ) {}

  protected static async described(runtime: Runtime, model: Bytes, repeats: boolean): Promise<
    [InferenceSession, readonly Port[], Readonly<Record<string, string>>, ReadonlyMap<string, readonly number[]>]
  > {
    const about = JSON.parse(metadataOf(model, "tuner.step") ?? "{}") as {
      format?: number;
      inputs?: Port[];
      updates?: Record<string, string>;
    };
    if (about.format !== 1 || !about.inputs) throw new TunerError("a training step of format 1 is wanted: export again");
    const shapes = inputShapes(model);
    for (const { name, shape, dtype } of about.inputs) {
      const declared = shapes.get(name);
      if (!(dtype in ARRAYS) || (declared && product(declared) !== product(shape))) {
        throw new TunerError(`${name} is not of the shape that is declared: export again`);
      }
    }
    return [await openSession(runtime, model, repeats), about.inputs, about.updates ?? {}, shapes];
  }

  only(kind: string): Port {
    const port = this.ports.find((one) => one.kind === kind);
    if (!port) throw new TunerError(`a training step must have an input of kind ${kind}: export again`);
    return port;
  }

  /** Feed data for a port, in the shape that the graph has; nothing where the graph does without it. */
  protected feed(feeds: Feeds, port: Port, data: Data): void {
    const shape = this.shapes.get(port.name);
    if (shape) feeds[port.name] = new this.runtime.Tensor(port.dtype as "float32", data as Float32Array, shape);
  }

  async release(): Promise<void> {
    await this.session.release();
  }
}

function blank(port: Port): Data {
  return new ARRAYS[port.dtype as keyof typeof ARRAYS](product(port.shape));
}

/** Rows of training samples: what a step takes at once. */
export interface Batch {
  readonly features: Float32Array;
  /** Row of the label of each sample; or numbers for each output. */
  readonly labels: ArrayLike<number>;
  readonly weights?: readonly number[] | undefined;
  readonly count: number;
}

/** A step with its weights and its optimiser's state. */
export class StepSession extends Described {
  #state = new Map<string, Data>();
  #buffers = new Map<string, Data>();
  #steps = 0;
  #random!: Random;
  #noise: Noise = (out) => out.forEach((_, i) => (out[i] = this.#random()));

  static async open(runtime: Runtime, model: Bytes, weights: Weights, noise?: Noise): Promise<StepSession> {
    const made = new StepSession(runtime, ...(await Described.described(runtime, model, true)));
    made.begin(weights);
    if (noise) made.#noise = noise;
    return made;
  }

  /** Begin anew from other weights. */
  begin(weights: Weights): void {
    this.#steps = 0;
    this.#random = randomOf(0);
    for (const port of this.ports) {
      if (port.kind === "parameter" || port.kind === "buffer") {
        const weight = weights.get(port.name);
        if (!weight || product(weight.shape) !== product(port.shape) || weight.type !== NAMES[port.dtype]) {
          throw new TunerError(`the step trains ${port.name}, which the weights lack: export again`);
        }
        this.#state.set(port.name, weight.data.slice());
      } else if (port.kind === "state") this.#state.set(port.name, blank(port));
      else this.#buffers.set(port.name, blank(port));
    }
  }

  get batchSize(): number {
    return this.only("input").shape[0]!;
  }

  /** Train on a batch; return its mean loss. */
  async step(batch: Batch, rate: number): Promise<number> {
    this.#steps++;
    const feeds: Feeds = {};
    let noises = 0;
    for (const port of this.ports) {
      const data = this.#state.get(port.name) ?? this.#buffers.get(port.name)!;
      if (port.kind === "input") padded(data, batch.features, batch.count, this.batchSize);
      else if (port.kind === "label") padded(data, batch.labels, batch.count, this.batchSize);
      else if (port.kind === "sample_weight") {
        (data as Float32Array).fill(0);
        for (let i = 0; i < batch.count; i++) data[i] = batch.weights?.[i] ?? 1;
      } else if (port.kind === "learning_rate") data[0] = rate;
      else if (port.kind === "step_count") data[0] = this.#steps;
      else if (port.kind === "noise") this.#noise(data as Float32Array, noises++, this.#steps);
      else if (!this.#state.has(port.name)) throw new TunerError(`a step with ${port.kind} cannot train here`);
      this.feed(feeds, port, data);
    }
    const outputs = await run(this.session, feeds, this.session.outputNames);
    for (const [output, name] of Object.entries(this.updates)) {
      const value = outputs[output];
      if (value) this.#state.set(name, value.data as Data);
    }
    const loss = outputs["loss"] ?? outputs[this.session.outputNames.find((name) => !(name in this.updates)) ?? ""];
    return Number((loss as OrtTensor).data[0]);
  }

  /** Return the seconds that a step takes here: the median of three, after one. What they train is to be begun anew. */
  async pace(): Promise<number> {
    const width = (port: Port): number => product(port.shape) / this.batchSize;
    const batch = { features: new Float32Array(width(this.only("input"))), labels: new Array<number>(width(this.only("label"))).fill(0), count: 1 };
    const seconds: number[] = [];
    for (let i = 0; i < 4; i++) {
      const began = performance.now();
      await this.step(batch, 0);
      if (i) seconds.push((performance.now() - began) / 1000);
    }
    return seconds.sort((one, two) => one - two)[1]!;
  }

  /** Parameters, buffers and the optimiser's state as they are. */
  get values(): ReadonlyMap<string, Data> {
    return this.#state;
  }

  /** Return the current parameters and buffers. */
  weights(): Map<string, Tensor> {
    const found = new Map<string, Tensor>();
    for (const { name, kind, shape, dtype } of this.ports) {
      if (kind !== "parameter" && kind !== "buffer") continue;
      found.set(name, { type: NAMES[dtype]!, shape, data: this.#state.get(name)!.slice() });
    }
    return found;
  }
}

/** Write rows, and fill up with the first: of weight zero, but not NaN. */
function padded(out: Data, rows: ArrayLike<number>, count: number, size: number): void {
  const width = out.length / size;
  if (!(count > 0 && count <= size) || rows.length !== count * width) {
    throw new TunerError(`a training step takes 1 to ${size} samples, got ${count} of ${rows.length} numbers`);
  }
  for (let i = 0; i < out.length; i++) {
    const value = rows[i < rows.length ? i : i % width]!;
    if (out instanceof BigInt64Array) out[i] = BigInt(value);
    else out[i] = value;
  }
}

/** The trainable part, from features to logits, with weights as inputs. */
export class Tail extends Described {
  static async open(runtime: Runtime, model: Bytes): Promise<Tail> {
    return new Tail(runtime, ...(await Described.described(runtime, model, false)));
  }

  /** Return the logits of each of some samples. */
  async logits(features: Float32Array, count: number, weights: Weights): Promise<Float32Array[]> {
    const input = this.only("input");
    const size = input.shape[0]!;
    const width = product(input.shape) / size;
    const logits: Float32Array[] = [];
    for (let at = 0; at < count; at += size) {
      const rows = Math.min(size, count - at);
      const batch = new Float32Array(size * width);
      batch.set(features.subarray(at * width, (at + rows) * width));
      const feeds: Feeds = {};
      for (const port of this.ports) {
        const data = port.kind === "input" ? batch : weights.get(port.name)?.data;
        if (!data) throw new TunerError(`the tail takes ${port.name}, which the weights lack: export again`);
        this.feed(feeds, port, data);
      }
      const outputs = await run(this.session, feeds, this.session.outputNames);
      const values = outputs[this.session.outputNames[0]!]!.data as Float32Array;
      const outputsEach = values.length / size;
      for (let i = 0; i < rows; i++) logits.push(values.slice(i * outputsEach, (i + 1) * outputsEach));
    }
    return logits;
  }

  /** Run once on named weights: the merge of adapters. */
  async merged(weights: Weights): Promise<Map<string, Float32Array>> {
    const feeds: Feeds = {};
    for (const port of this.ports) this.feed(feeds, port, weights.get(port.name)!.data);
    const outputs = await run(this.session, feeds, this.session.outputNames);
    return new Map(Object.entries(outputs).map(([name, value]) => [name, value.data as Float32Array]));
  }
}
