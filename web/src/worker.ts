/** A learner in a worker: photos in, answers out. */

import { Bundle } from "./bundle.ts";
import { TunerError } from "./bytes.ts";
import type { Calls, Request, Response } from "./client.ts";
import { decodePhoto, fit } from "./image.ts";
import { Learner } from "./learner.ts";
import type { Sample } from "./model.ts";
import { configure, type Runtime } from "./session.ts";
import { browserStore, memoryStore } from "./store.ts";

const MOST_HANDLES = 200;

type Handlers = { readonly [N in keyof Calls]: (...values: Parameters<Calls[N]>) => Promise<ReturnType<Calls[N]>> };

let learner: Learner | undefined;
let threads = 1;
let progress = (_share: number): void => {};
const handles = new Map<number, Sample>();
let last = 0;

function opened(): Learner {
  if (!learner) throw new TunerError("no bundle is open: call open first");
  return learner;
}

async function sampleOf(photo: Blob): Promise<Sample> {
  const { input } = opened().bundle.info;
  if (input.kind !== "images") throw new TunerError(`the bundle takes ${input.kind}, not photos`);
  return fit(await decodePhoto(photo), input);
}

const handlers: Handlers = {
  async open(folder, ort, wanted) {
    const runtime = (await import(/* @vite-ignore */ `${ort}ort.wasm.min.mjs`)) as Runtime;
    threads = configure(runtime, ort, wanted);
    const bundle =
      typeof folder === "string" ? await Bundle.fetch(folder) : await Bundle.unzip(new Uint8Array(await folder.arrayBuffer()));
    const store = await browserStore("device-tuner").catch(memoryStore);
    learner = await Learner.open(bundle, runtime, store);
    const { name, labels, input, sentence } = bundle.info;
    return { name, labels, kind: input.kind, threads, sentence: String(sentence ?? "") };
  },
  async predict(photo) {
    const began = performance.now();
    const sample = await sampleOf(photo);
    const decoded = (performance.now() - began) / 1000;
    const prediction = await opened().predict(sample);
    handles.set(++last, sample);
    for (const old of [...handles.keys()].slice(0, -MOST_HANDLES)) handles.delete(old);
    return { ...prediction, handle: last, decoded };
  },
  async keep(handle, label) {
    const sample = handles.get(handle);
    if (!sample) throw new TunerError("this photo is no longer there: choose it again");
    return opened().keep(sample, label);
  },
  remove: (identity) => opened().remove(identity),
  async samples() {
    const size = opened().bundle.info.input.size ?? 0;
    return (await opened().samples()).map(({ identity, label, sample }) => {
      const pixels = new Uint8ClampedArray(size * size * 4).fill(255);
      for (let i = 0; i < size * size; i++) for (let c = 0; c < 3; c++) pixels[4 * i + c] = sample[c * size * size + i]!;
      return { identity, label, pixels, size };
    });
  },
  learn: () => opened().learn(progress),
  rollBack: () => opened().rollBack(),
  forget: () => opened().forget(),
  zip: () => opened().zip(),
  status: () => opened().status(),
  async measure(times) {
    const { bundle, runtime } = opened();
    const sample = new Uint8Array(bundle.info.input_shape.reduce((a, b) => a * b, 1)).map((_, i) => i % 251);
    const seconds: number[] = [];
    for (let i = 0; i < times; i++) seconds.push((await opened().predict(sample)).seconds);
    const step = bundle.has("train/step.onnx") ? await stepSeconds(bundle, runtime, times) : NaN;
    return { predict: least(seconds), step, threads };
  },
  async check(folder) {
    const { conformance } = await import("./conformance.ts");
    return conformance(
      opened().exported,
      opened().runtime,
      async (name) => {
        const response = await fetch(new URL(name, new URL(folder, location.href)));
        return response.ok ? new Uint8Array(await response.arrayBuffer()) : undefined;
      },
      (content) => decodePhoto(new Blob([content])),
    );
  },
};

/** The least of some times: on a device that does other work too, what is above it is that work. */
const least = (values: number[]): number => Math.min(...values);

async function stepSeconds(bundle: Bundle, runtime: Runtime, times: number): Promise<number> {
  const { StepSession } = await import("./step.ts");
  const weights = (await bundle.tensors("weights.safetensors")).tensors;
  const session = await StepSession.open(runtime, await bundle.file("train/step.onnx"), weights);
  const { shape } = session.only("input");
  const features = new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => (i % 17) / 17);
  const batch = { features, labels: new Array<number>(shape[0]!).fill(0), count: shape[0]! };
  const seconds: number[] = [];
  for (let i = 0; i < times; i++) {
    const began = performance.now();
    await session.step(batch, 1e-5);
    seconds.push((performance.now() - began) / 1000);
  }
  await session.release();
  return least(seconds);
}

const post = (response: Response): void => (postMessage as (message: unknown) => void)(response);
let turn: Promise<void> = Promise.resolve();

// one call after the other: ONNX Runtime's sessions share one memory
onmessage = ({ data: { id, name, values } }: MessageEvent<Request>) => {
  turn = turn.then(async () => {
    progress = (share) => post({ id, progress: share });
    try {
      const handler = handlers[name] as (...values: readonly unknown[]) => Promise<unknown>;
      post({ id, value: await handler(...values) });
    } catch (error) {
      post({ id, error: error instanceof Error ? error.message : String(error), ours: error instanceof TunerError });
    }
  });
};

