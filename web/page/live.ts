/** The camera; and the microphone: every second is heard, and the last ones can be taken as a clip. */

import { byId, element } from "./element.ts";
import { type Patching, RATE, resample, spanOf } from "../src/sound.ts";

/** Seconds of a clip, and the shortest one. */
const [CLIP, SHORTEST] = [2, 1] as const;
/** Seconds that are kept of what was heard: where answers take longer than the sound, the oldest are left out. */
const KEPT = 20;
/** Resampling rounds the number of samples. */
const MARGIN = 64;
const REASONS: Readonly<Record<string, string>> = {
  NotAllowedError: "the microphone was refused: allow it for this page in the browser's settings, or choose sound files",
  NotFoundError: "there is no microphone: connect one, or choose sound files",
  NotReadableError: "the microphone is in use by another program: close that, or choose sound files",
};

/** The camera, whose picture the page shows. */
export class Camera {
  readonly #video = byId<HTMLVideoElement>("video");

  async start(): Promise<void> {
    if (!navigator.mediaDevices) throw new Error("the browser gives a camera to pages of HTTPS or localhost only");
    this.#video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    await this.#video.play();
  }

  /** Return a photo; nothing where the browser cannot write one. */
  async take(): Promise<Blob | null> {
    const canvas = element("canvas", { width: this.#video.videoWidth, height: this.#video.videoHeight });
    canvas.getContext("2d")?.drawImage(this.#video, 0, 0);
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  close(): void {
    for (const track of (this.#video.srcObject as MediaStream | null)?.getTracks() ?? []) track.stop();
    this.#video.srcObject = null;
  }
}

/** Return a sound in clips; its rest is one of them where it is long enough. */
export function clipsOf(sound: Float32Array = new Float32Array()): Float32Array[] {
  const clips: Float32Array[] = [];
  for (let at = 0; at + SHORTEST * RATE <= sound.length; at += CLIP * RATE) clips.push(sound.slice(at, at + CLIP * RATE));
  return clips;
}

export class Microphone {
  #context: AudioContext | undefined;
  #stream: MediaStream | undefined;
  #patching!: Patching;
  #blocks: Float32Array[] = [];
  /** Samples that came, and up to which clips were taken, at the rate of the device. */
  #end = 0;
  #taken = 0;
  #second = 0;
  #hearing = false;

  /** `hear` gets every second with the sound that its patches read; `came` is called whenever there is more. */
  constructor(
    private readonly hear: (second: number, sound: Float32Array) => Promise<void>,
    private readonly came: () => void,
  ) {}

  get open(): boolean {
    return this.#context !== undefined;
  }

  /** Whether there is enough for a clip, after the last one. */
  get ready(): boolean {
    return this.open && this.#end - this.#taken >= SHORTEST * this.#context!.sampleRate;
  }

  /** Ask for the microphone, and begin to listen. */
  async start(patching: Patching): Promise<void> {
    if (!navigator.mediaDevices) throw new Error("the browser gives a microphone to pages of HTTPS or localhost only");
    this.close();
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false }; // those are for speech
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio }).catch((error: DOMException) => {
      throw new Error(REASONS[error.name] ?? `the microphone cannot be used (${error.message}): choose sound files`);
    });
    const context = (this.#context = new AudioContext());
    await context.audioWorklet.addModule("worklet.js");
    const tap = new AudioWorkletNode(context, "tap", { channelCount: 1, channelCountMode: "explicit" });
    tap.port.onmessage = ({ data }: MessageEvent<Float32Array>) => this.#add(data);
    context.createMediaStreamSource(this.#stream).connect(tap).connect(context.destination); // which gets silence
    await context.resume();
    [this.#patching, this.#blocks, this.#end, this.#taken, this.#second] = [patching, [], 0, 0, 0];
  }

  /** Return the last seconds, from the last clip on. */
  take(): Float32Array {
    const begin = Math.max(this.#taken, this.#end - CLIP * this.#context!.sampleRate);
    this.#taken = this.#end;
    return this.#sound(begin, this.#end);
  }

  close(): void {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    void this.#context?.close();
    this.#context = this.#stream = undefined;
  }

  #add(block: Float32Array): void {
    if (!this.#context) return;
    this.#blocks.push(block);
    this.#end += block.length;
    for (let kept = this.#blocks.reduce((sum, one) => sum + one.length, 0); kept > KEPT * this.#context.sampleRate; ) kept -= this.#blocks.shift()!.length;
    this.came();
    void this.#advance();
  }

  /** Hear the seconds that are complete, one after the other. */
  async #advance(): Promise<void> {
    if (this.#hearing) return;
    this.#hearing = true;
    try {
      while (this.#context) {
        const scale = this.#context.sampleRate / RATE;
        this.#second = Math.max(this.#second, Math.ceil(this.#end / this.#context.sampleRate - KEPT) + 1);
        const span = spanOf(this.#second, this.#patching);
        if (span && Math.ceil(span[1] * scale) + MARGIN > this.#end) return;
        const second = this.#second++;
        if (!span) continue;
        const sound = this.#sound(Math.floor(span[0] * scale), Math.ceil(span[1] * scale) + MARGIN);
        await this.hear(second, sound.subarray(0, span[1] - span[0]));
      }
    } finally {
      this.#hearing = false;
    }
  }

  /** Return what came from one sample to another, at `RATE`. */
  #sound(begin: number, end: number): Float32Array {
    const rate = this.#context!.sampleRate;
    const all = new Float32Array(end - begin);
    let at = this.#end - this.#blocks.reduce((sum, one) => sum + one.length, 0) - begin;
    for (const block of this.#blocks) {
      const [from, to] = [Math.max(0, -at), Math.min(block.length, all.length - at)];
      if (from < to) all.set(block.subarray(from, to), at + from);
      at += block.length;
    }
    return resample(all, rate);
  }
}
