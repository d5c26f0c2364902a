/** ONNX Runtime, as far as it is used: given by whoever loads it, so that this library does not hold it. */

import type { InferenceSession, Tensor as OrtTensor, TensorConstructor, Env } from "onnxruntime-common";
import { type Bytes, product, TunerError } from "./bytes.ts";

/** The module `onnxruntime-web` or a part of it. */
export interface Runtime {
  readonly InferenceSession: {
    create(model: Uint8Array, options?: InferenceSession.SessionOptions): Promise<InferenceSession>;
  };
  readonly Tensor: TensorConstructor;
  readonly env: Env;
}

export type Feeds = Record<string, OrtTensor>;

/** Where ONNX Runtime's own files are, and how many threads it takes where the page may have any. */
export function configure(runtime: Runtime, paths?: string, threads?: number): number {
  const cores = globalThis.navigator?.hardwareConcurrency ?? 1;
  runtime.env.wasm.numThreads = globalThis.crossOriginIsolated ? (threads ?? Math.min(4, cores)) : 1;
  if (paths) runtime.env.wasm.wasmPaths = paths;
  runtime.env.logLevel = "error";
  return runtime.env.wasm.numThreads;
}

/** Open a model. */
export async function openSession(runtime: Runtime, model: Bytes, repeats = false): Promise<InferenceSession> {
  try {
    return await runtime.InferenceSession.create(model, {
      executionProviders: ["wasm"],
      graphOptimizationLevel: "all",
      enableCpuMemArena: true,
      enableMemPattern: repeats,
      logSeverityLevel: 3,
    });
  } catch (error) {
    throw new TunerError(`ONNX Runtime cannot load the model (${String(error).split("\n")[0]}): export again`);
  }
}

/** Return a tensor of float32. */
export function floatTensor(runtime: Runtime, data: Float32Array, shape: readonly number[]): OrtTensor {
  if (data.length !== product(shape)) throw new TunerError(`${data.length} numbers are not of shape [${shape.join(", ")}]`);
  return new runtime.Tensor("float32", data, shape);
}

/** Run a model, and return its outputs by name. */
export async function run(session: InferenceSession, feeds: Feeds, names: readonly string[]): Promise<Feeds> {
  return (await session.run(feeds, [...names])) as Feeds;
}
