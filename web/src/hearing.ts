/** Sounds: the bundle's own model cuts them into patches as Python does, and each second has an answer. */

import type { InferenceSession } from "onnxruntime-common";
import type { Bundle } from "./bundle.ts";
import { argmax, product, TunerError } from "./bytes.ts";
import { Model, type Prediction } from "./model.ts";
import { floatTensor, openSession, run, type Runtime } from "./session.ts";

/** The model from a sound to patches. */
export const INPUT = "input.onnx";
/** Samples in a second of what is heard, mono. */
export const RATE = 16_000;
const [FRAME, STEP] = [400, 160];

/** What is heard around a second. */
export interface Heard {
  /** The second in the middle of a patch. */
  readonly second: number;
  readonly prediction: Prediction;
}

/** A bundle of sounds, ready to hear. */
export class Hearing {
  private constructor(
    readonly model: Model,
    private readonly runtime: Runtime,
    private readonly session: InferenceSession,
  ) {}

  static async open(bundle: Bundle, runtime: Runtime): Promise<Hearing> {
    if (!bundle.has(INPUT)) throw new TunerError(`the bundle has no ${INPUT}: it is not of sounds, or was exported before they were heard here; export it again`);
    return new Hearing(await Model.open(bundle, runtime), runtime, await openSession(runtime, await bundle.file(INPUT)));
  }

  /** Return the patches of a sound, mono at `RATE`, from -1 to 1: samples of the model. A short one is padded with silence. */
  async patches(sound: Float32Array): Promise<Float32Array[]> {
    const { patches } = await run(this.session, { sound: floatTensor(this.runtime, sound, [sound.length]) }, ["patches"]);
    const size = product(this.model.bundle.info.input_shape);
    const data = patches!.data as Float32Array;
    return Array.from({ length: data.length / size }, (_, i) => data.slice(i * size, (i + 1) * size));
  }

  /** Return what is heard: by the second, and the label of the most probable mean over all patches. */
  async hear(sound: Float32Array): Promise<{ readonly label: string; readonly probabilities: Float64Array; readonly heard: Heard[] }> {
    const { labels, input, input_shape: shape } = this.model.bundle.info;
    const window = shape[shape.length - 1]!;
    const heard: Heard[] = [];
    for (const [i, patch] of (await this.patches(sound)).entries()) {
      const begin = (i * (input.hop ?? window) * STEP) / RATE;
      heard.push({ second: begin + (FRAME + (window - 1) * STEP) / RATE / 2, prediction: await this.model.predict(patch) });
    }
    const probabilities = Float64Array.from(labels, (_, label) => {
      return heard.reduce((sum, { prediction }) => sum + prediction.probabilities[label]!, 0) / heard.length;
    });
    return { label: labels[argmax(probabilities)]!, probabilities, heard };
  }

  async release(): Promise<void> {
    await this.session.release();
    await this.model.release();
  }
}
