/** Sounds: the bundle's own model cuts them into patches as Python does, and each second has an answer. */

import type { InferenceSession } from "onnxruntime-common";
import type { Bundle } from "./bundle.ts";
import { product, TunerError } from "./bytes.ts";
import { concatenated, Model, partsOf, type Prediction, predictionOf, type Sample } from "./model.ts";
import { floatTensor, openSession, run, type Runtime } from "./session.ts";
import { type Patching, patchingOf, RATE } from "./sound.ts";

/** The model from a sound to patches. */
export const INPUT = "input.onnx";
/** It takes 2 MB of memory for each second, so a longer sound is given in parts. */
const PART_SECONDS = 60;
/** Most columns of a picture, and the range of log-mel bands that it shows. */
const [COLUMNS, LOWEST, HIGHEST] = [256, -7, 2];

/** What is heard around a second. */
export interface Heard {
  /** The second in the middle of a patch. */
  readonly second: number;
  readonly prediction: Prediction;
}

/** A picture, four bytes each pixel: red, green, blue, opaque. */
export interface Picture {
  readonly pixels: Uint8ClampedArray<ArrayBuffer>;
  readonly width: number;
  readonly height: number;
}

/** What answers patches: a model, or a learner with its round in use. */
export interface Answering {
  readonly bundle: Bundle;
  predict(sample: Sample): Promise<Prediction>;
}

/** A bundle of sounds, ready to hear. */
export class Hearing {
  private constructor(
    readonly model: Answering,
    private readonly runtime: Runtime,
    private readonly session: InferenceSession,
    private readonly opened?: Model,
  ) {}

  /** Open a bundle; what it hears is answered by its own model, or by another one of the same input. */
  static async open(bundle: Bundle, runtime: Runtime, model?: Answering): Promise<Hearing> {
    if (!bundle.has(INPUT)) throw new TunerError(`the bundle has no ${INPUT}: it is not of sounds, or was exported before they were heard here; export it again`);
    const opened = model ? undefined : await Model.open(bundle, runtime);
    return new Hearing(model ?? opened!, runtime, await openSession(runtime, await bundle.file(INPUT)), opened);
  }

  /** Where patches are in a sound. */
  get patching(): Patching {
    const { input, input_shape: shape } = this.model.bundle.info;
    const window = shape[shape.length - 1]!;
    return patchingOf(window, input.hop ?? window);
  }

  /** Return the patches of a sound, mono at `RATE`, from -1 to 1: samples of the model. A short one is padded with silence. */
  async patches(sound: Float32Array): Promise<Float32Array[]> {
    const { length, hop } = this.patching;
    const count = Math.max(1, Math.floor((PART_SECONDS * RATE - length) / hop));
    const patches: Float32Array[] = [];
    for (let begin = 0; !begin || begin + length <= sound.length; begin += count * hop) {
      const part = sound.subarray(begin, begin + (count - 1) * hop + length);
      const found = await run(this.session, { sound: floatTensor(this.runtime, part, [part.length]) }, ["patches"]);
      const data = found["patches"]!.data as Float32Array;
      const size = product(this.model.bundle.info.input_shape);
      for (let at = 0; at < data.length; at += size) patches.push(data.slice(at, at + size));
    }
    return patches;
  }

  /** Return all patches of a sound in one: a sample that a learner keeps as a whole. */
  async clip(sound: Float32Array): Promise<Float32Array> {
    return concatenated(await this.patches(sound));
  }

  /** Return what is heard: around the middle of each patch, and the answer to the mean over all. */
  async hear(sound: Float32Array): Promise<Prediction & { readonly heard: Heard[] }> {
    return this.answer(await this.clip(sound));
  }

  /** Likewise, of a clip. */
  async answer(clip: Sample): Promise<Prediction & { readonly heard: Heard[] }> {
    const { length, hop } = this.patching;
    const heard: Heard[] = [];
    for (const [i, patch] of partsOf(clip, this.model.bundle.info).entries()) {
      heard.push({ second: (i * hop + length / 2) / RATE, prediction: await this.model.predict(patch) });
    }
    return { ...this.mean(heard), heard };
  }

  /** Return the answer to the mean over some of what is heard. */
  mean(heard: readonly Heard[]): Prediction {
    const all = heard.map(({ prediction }) => prediction);
    const means = all[0]!.probabilities.map((_, i) => all.reduce((sum, one) => sum + one.probabilities[i]!, 0) / all.length);
    const exit = Math.max(...all.map((one) => one.exit));
    return predictionOf(this.model.bundle.info, means, exit, all.reduce((sum, { seconds }) => sum + seconds, 0));
  }

  /** Return the answer to each second that has the middle of a patch. */
  seconds(heard: readonly Heard[]): Heard[] {
    const whole = new Set(heard.map(({ second }) => Math.floor(second)));
    return [...whole].map((second) => ({ second, prediction: this.mean(heard.filter((one) => Math.floor(one.second) === second)) }));
  }

  /** Draw a clip: time from left to right, low bands below. */
  picture(clip: Sample): Picture {
    const { input, input_shape: shape } = this.model.bundle.info;
    const [window, bands] = [shape[shape.length - 1]!, shape[shape.length - 2]!];
    const [hop, last] = [input.hop ?? window, partsOf(clip, this.model.bundle.info).length - 1];
    const frames = last * hop + window;
    const width = Math.min(COLUMNS, frames);
    const pixels = new Uint8ClampedArray(4 * width * bands).fill(255);
    for (let x = 0; x < width; x++) {
      const frame = Math.floor((x * frames) / width);
      const patch = Math.min(last, Math.floor(frame / hop));
      const column = Math.min(window - 1, frame - patch * hop);
      for (let band = 0; band < bands; band++) {
        const value = clip[(patch * bands + band) * window + column]!;
        const level = Math.min(1, Math.max(0, (value - LOWEST) / (HIGHEST - LOWEST)));
        // from dark blue over red to light yellow
        pixels.set([510 * level - 50, 400 * level - 150, 80 + 100 * Math.sin(Math.PI * level)], 4 * ((bands - 1 - band) * width + x));
      }
    }
    return { pixels, width, height: bands };
  }

  async release(): Promise<void> {
    await this.session.release();
    await this.opened?.release();
  }
}
