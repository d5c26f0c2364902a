/** A learner in a worker: photos or sounds in, answers out. */

import { Bundle, fetched } from "./bundle.ts";
import { TunerError } from "./bytes.ts";
import { type Answer, type Calls, Client, type Request, type Response } from "./client.ts";
import type { Hearing, Picture } from "./hearing.ts";
import { decodePhoto, fit } from "./image.ts";
import { type Change, identityOf, Learner } from "./learner.ts";
import type { Prediction, Sample } from "./model.ts";
import { configure, type Runtime } from "./session.ts";
import { browserStore, memoryStore } from "./store.ts";
import { measuredThreads, work } from "./threads.ts";

const MOST_HANDLES = 500;

type Handlers = { readonly [N in keyof Calls]: (...values: Parameters<Calls[N]>) => Promise<ReturnType<Calls[N]>> };

let learner: Learner | undefined;
/** Of a bundle of sounds. */
let hearing: Hearing | undefined;
let threads = 1;
let progress = (_share: number): void => {};
const handles = new Map<number, Sample>();
let last = 0;
let metered: (() => Promise<number>) | undefined;

function opened(): Learner {
  if (!learner) throw new TunerError("no bundle is open: call open first");
  return learner;
}

function taken(handle: number): Sample {
  const sample = handles.get(handle);
  if (!sample) throw new TunerError("this photo is no longer there: choose it again");
  return sample;
}

function listening(): Hearing {
  if (!hearing) throw new TunerError(`the bundle takes ${opened().bundle.info.input.kind}, not sounds`);
  return hearing;
}

async function sampleOf(photo: Blob | Float32Array): Promise<Sample> {
  if (photo instanceof Float32Array) return listening().clip(photo);
  const { input } = opened().bundle.info;
  if (input.kind !== "images") throw new TunerError(`the bundle takes ${input.kind}, not photos`);
  return fit(await decodePhoto(photo), input);
}

/** Return a sample as the model sees it, to be shown; nothing where it is neither a photo nor a sound. */
function pictureOf(sample: Sample): Picture | undefined {
  if (hearing) return hearing.picture(sample);
  const size = opened().bundle.info.input.size ?? 0;
  const pixels = new Uint8ClampedArray(size * size * 4).fill(255);
  for (let i = 0; i < size * size; i++) for (let c = 0; c < 3; c++) pixels[4 * i + c] = sample[c * size * size + i]!;
  return size ? { pixels, width: size, height: size } : undefined;
}

const handlers: Handlers = {
  async open(folder, ort, wanted) {
    const runtime = (await import(/* @vite-ignore */ `${ort}ort.wasm.min.mjs`)) as Runtime;
    // once: the threads of ONNX Runtime stay as they are when its first session is opened
    if (!learner) threads = configure(runtime, ort, wanted ?? (await usefulThreads()));
    const bundle =
      typeof folder === "string" ? await Bundle.fetch(folder) : await Bundle.unzip(new Uint8Array(await folder.arrayBuffer()));
    const store = await browserStore("device-tuner").catch(memoryStore);
    learner = await Learner.open(bundle, runtime, store);
    await hearing?.release();
    hearing = bundle.info.input.kind === "audio" ? await (await import("./hearing.ts")).Hearing.open(bundle, runtime, learner) : undefined;
    metered = undefined;
    const { name, labels, input, sentence } = bundle.info;
    const about = { name, labels, kind: input.kind, multi: bundle.info.loss === "multi-label", numbers: Boolean(bundle.info.targets) };
    return { ...about, threads, sentence: String(sentence ?? ""), ...(hearing ? { patching: hearing.patching } : {}) };
  },
  async predict(photo) {
    const began = performance.now();
    const sample = typeof photo === "number" ? taken(photo) : await sampleOf(photo);
    const decoded = (performance.now() - began) / 1000;
    const prediction = await (hearing ? heardIn(hearing, sample) : opened().predict(sample));
    const identity = identityOf(sample);
    if (typeof photo === "number") return { ...prediction, handle: photo, identity, decoded };
    handles.set(++last, sample);
    for (const old of [...handles.keys()].slice(0, -MOST_HANDLES)) handles.delete(old);
    return { ...prediction, handle: last, identity, decoded };
  },
  async hear(sound) {
    const { heard: _, ...prediction } = await listening().hear(sound);
    return prediction;
  },
  async keep(photos) {
    const from = photos.map(({ photo }) => (typeof photo === "number" ? taken(photo) : photo));
    const changes: Change[] = [];
    for (const [i, { label }] of photos.entries()) changes.push(await opened().keep(from[i]!, label));
    return changes;
  },
  async remove(identities) {
    for (const identity of identities) await opened().remove(identity);
  },
  async samples(known = []) {
    const has = new Set(known);
    return (await opened().samples()).map(({ identity, label, sample }) => {
      const picture = has.has(identity) ? undefined : pictureOf(sample);
      return { identity, label, ...(picture ? { picture } : {}) };
    });
  },
  learn: (seconds) => opened().learn(progress, undefined, seconds),
  rollBack: () => opened().rollBack(),
  forget: () => opened().forget(),
  zip: () => opened().zip(),
  status: () => opened().status(),
  async measure(times) {
    const { bundle } = opened();
    const sample = new Uint8Array(bundle.info.input_shape.reduce((a, b) => a * b, 1)).map((_, i) => i % 251);
    const [predict, step]: [number[], number[]] = [[], []];
    for (let i = 0; i < times; i++) predict.push((await opened().predict(sample)).seconds);
    if (bundle.has("train/step.onnx")) {
      metered ??= await stepOf(opened());
      for (let i = 0; i < times; i++) step.push(await metered());
    }
    return { predict, step, threads };
  },
  work: async () => work(),
  async check(folder) {
    const { conformance } = await import("./conformance.ts");
    return conformance(
      opened().exported,
      opened().runtime,
      fetched(folder),
      (content) => decodePhoto(new Blob([content])),
    );
  },
};

/** Return the answer to a clip, and to each of its seconds. */
async function heardIn(by: Hearing, clip: Sample): Promise<Prediction & Pick<Answer, "heard" | "picture">> {
  const { heard, ...prediction } = await by.answer(clip);
  return { ...prediction, heard: by.seconds(heard), picture: by.picture(clip) };
}

/** Return how many threads pay, where the page may have any: the others are workers of this same file, for a moment. */
async function usefulThreads(): Promise<number> {
  if (!globalThis.crossOriginIsolated) return 1;
  const others: Worker[] = [];
  const most = Math.min(4, navigator.hardwareConcurrency);
  try {
    return await measuredThreads(most, async (count) => {
      const clients = Array.from({ length: count }, () => {
        others.push(new Worker(globalThis.location.href, { type: "module" }));
        return new Client(others.at(-1)!);
      });
      await Promise.all(clients.map((client) => client.call("work"))); // until they are loaded
      return clients.map((client) => () => client.call("work"));
    });
  } catch {
    return most; // a browser without workers in workers
  } finally {
    for (const other of others) other.terminate();
  }
}

/** Return what trains a step, and returns its seconds: a session that is opened once. */
async function stepOf({ bundle, runtime }: Learner): Promise<() => Promise<number>> {
  const { StepSession } = await import("./step.ts");
  const weights = (await bundle.tensors("weights.safetensors")).tensors;
  const session = await StepSession.open(runtime, await bundle.file("train/step.onnx"), weights);
  const { shape } = session.only("input");
  const features = new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => (i % 17) / 17);
  const outputs = session.only("label").shape.slice(1).reduce((a, b) => a * b, shape[0]!);
  const batch = { features, labels: new Array<number>(outputs).fill(0), count: shape[0]! };
  return async () => {
    const began = performance.now();
    await session.step(batch, 1e-5);
    return (performance.now() - began) / 1000;
  };
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

