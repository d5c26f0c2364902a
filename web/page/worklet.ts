/** Passes on what the microphone hears, in the thread of the browser's audio. */

declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

/** The browser gives 128 samples at a time: so many go to the page at once. */
const AT_ONCE = 2048;

class Tap extends AudioWorkletProcessor {
  #block = new Float32Array(AT_ONCE);
  #filled = 0;

  process([channels]: readonly (readonly Float32Array[])[]): boolean {
    const heard = channels?.[0];
    if (!heard) return true;
    this.#block.set(heard, this.#filled);
    this.#filled += heard.length;
    if (this.#filled + heard.length > AT_ONCE) {
      this.port.postMessage(this.#block.subarray(0, this.#filled));
      this.#filled = 0;
    }
    return true;
  }
}

registerProcessor("tap", Tap);
