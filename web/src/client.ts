/** The page's side of a learner in a worker: the page never waits while it trains. */

import type { Verdict } from "./gate.ts";
import type { Heard, Picture } from "./hearing.ts";
import type { Prediction } from "./model.ts";
import type { Change, Status } from "./learner.ts";
import { TunerError } from "./bytes.ts";
import type { Patching } from "./sound.ts";

export interface Opened {
  readonly name: string;
  readonly labels: readonly string[];
  readonly kind: string;
  /** Whether a photo may have several labels. */
  readonly multi: boolean;
  /** Whether the model answers numbers: its labels are their names. */
  readonly numbers: boolean;
  readonly threads: number;
  readonly sentence: string;
  /** Where the patches of a sound are, for a bundle of sounds. */
  readonly patching?: Patching;
}

export interface Kept {
  readonly identity: string;
  readonly label: string;
  /** The photo or the sound as the model sees it, to be shown. */
  readonly picture?: Picture;
}

/** The answer to a photo or a sound; its identity is a hash of what the model sees. */
export interface Answer extends Prediction {
  readonly handle: number;
  readonly identity: string;
  /** Seconds that decoding took, or cutting into patches. */
  readonly decoded: number;
  /** Of a sound: what is heard in each second, and its picture. */
  readonly heard?: readonly Heard[];
  readonly picture?: Picture;
}

/** A photo and its label. */
export interface Photo {
  readonly photo: number | string;
  readonly label: string;
}

/** What a worker does, by name: arguments, and what it returns. */
export interface Calls {
  open(folder: string | Blob, ort: string, threads?: number): Opened;
  /** Predict a photo, or a sound, mono at `RATE`; or, by the handle that it got, the same again. */
  predict(photo: Blob | Float32Array | number): Answer;
  /** Predict a sound, and keep nothing of it. */
  hear(sound: Float32Array): Prediction;
  /** Keep photos with their labels: by their handles, or, those that are kept or were removed, by their identities. */
  keep(photos: readonly Photo[]): readonly Change[];
  remove(identities: readonly string[]): void;
  /** Return what is kept; without pixels where an identity is among the known ones. */
  samples(known?: readonly string[]): readonly Kept[];
  /** Learn in a round of so many seconds at most; a few where they are not given. */
  learn(seconds?: number): Verdict;
  rollBack(): string;
  forget(): void;
  zip(): Blob;
  status(): Status;
  /** Seconds of predictions, and of training steps where the bundle has any. */
  measure(times: number): { readonly predict: readonly number[]; readonly step: readonly number[]; readonly threads: number };
  /** Work for about a hundredth of a second: to measure threads with. */
  work(): number;
  check(folder: string): readonly { readonly name: string; readonly difference: number; readonly tolerance: number }[];
}

export interface Request {
  readonly id: number;
  readonly name: keyof Calls;
  readonly values: readonly unknown[];
}

export type Response =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: string; readonly ours: boolean }
  | { readonly id: number; readonly progress: number };

/** Calls a worker of `device-tuner/worker`. */
export class Client {
  readonly #waiting = new Map<number, { resolve(value: unknown): void; reject(error: Error): void; progress?: (share: number) => void }>();
  #last = 0;

  constructor(private readonly worker: Worker) {
    worker.onmessage = ({ data }: MessageEvent<Response>) => {
      const waiting = this.#waiting.get(data.id);
      if (!waiting) return;
      if ("progress" in data) {
        waiting.progress?.(data.progress);
        return;
      }
      this.#waiting.delete(data.id);
      if ("error" in data) waiting.reject(data.ours ? new TunerError(data.error) : new Error(data.error));
      else waiting.resolve(data.value);
    };
    worker.onerror = (event) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(event.message || "the worker cannot be loaded"));
      this.#waiting.clear();
    };
  }

  /** Call a function of the worker. */
  call<N extends keyof Calls>(name: N, ...values: Parameters<Calls[N]>): Promise<ReturnType<Calls[N]>> {
    return this.watch(name, undefined, ...values);
  }

  /** Call a function, and be told how far it is. */
  watch<N extends keyof Calls>(
    name: N,
    progress: ((share: number) => void) | undefined,
    ...values: Parameters<Calls[N]>
  ): Promise<ReturnType<Calls[N]>> {
    const id = ++this.#last;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: (value) => resolve(value as ReturnType<Calls[N]>), reject, ...(progress ? { progress } : {}) });
      this.worker.postMessage({ id, name, values } satisfies Request);
    });
  }
}
