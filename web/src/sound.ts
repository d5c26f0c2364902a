/** Sounds: files that the browser decodes, and where their seconds and patches are. */

import { TunerError, viewOf } from "./bytes.ts";

/** Samples in a second of what is heard, mono. */
export const RATE = 16_000;
const [FRAME, STEP] = [400, 160];
const LONGEST_SECONDS = 600;
/** Rate of most files that do not say it in their first bytes. */
const USUAL = 48_000;
/** Share of the band that is kept, and zeros of the sinc on each side. */
const [BAND, ZEROS] = [0.95, 64];

/** Where the patches of a sound are, in samples at `RATE`: their length, and how far one begins after the other. */
export interface Patching {
  readonly length: number;
  readonly hop: number;
}

/** Return where patches of so many frames are. */
export function patchingOf(window: number, hop: number): Patching {
  return { length: (window - 1) * STEP + FRAME, hop: hop * STEP };
}

/** Return the samples that the patches read whose middle is in a second; nothing where there are none. */
export function spanOf(second: number, { length, hop }: Patching): readonly [begin: number, end: number] | undefined {
  const first = (from: number): number => Math.max(0, Math.ceil((from * RATE - length / 2) / hop));
  const [one, beyond] = [first(second), first(second + 1)];
  return one < beyond ? [one * hop, (beyond - 1) * hop + length] : undefined;
}

/** Return the rate that a WAV, FLAC or Vorbis file is written with; of others that which most have. */
export function rateOf(file: Uint8Array): number {
  const view = viewOf(file);
  const is = (at: number, letters: string): boolean => [...letters].every((letter, i) => file[at + i] === letter.charCodeAt(0));
  const known = is(0, "RIFF") && is(8, "WAVEfmt ") ? view.getUint32(24, true) : is(0, "fLaC") ? view.getUint32(18) >>> 12 : is(29, "vorbis") ? view.getUint32(40, true) : USUAL;
  return known >= 8000 && known <= 96_000 ? known : USUAL;
}

/** Resample to `RATE` with a windowed sinc, which keeps nine tenths of the band: browsers lose half of 7 kHz. */
export function resample(sound: Float32Array, from: number): Float32Array {
  if (from === RATE) return sound;
  let [phases, rest] = [RATE, from];
  while (rest) [phases, rest] = [rest, phases % rest];
  phases = RATE / phases;
  const cutoff = BAND * Math.min(1, RATE / from);
  const half = Math.ceil(ZEROS / cutoff);
  const kernels = Array.from({ length: phases }, (_, phase) => {
    const kernel = Float64Array.from({ length: 2 * half }, (_, tap) => {
      const x = tap + 1 - half - phase / phases;
      const angle = Math.PI * cutoff * x;
      const at = Math.PI * (x / half);
      return (angle ? Math.sin(angle) / angle : 1) * (0.42 + 0.5 * Math.cos(at) + 0.08 * Math.cos(2 * at)); // Blackman's window
    });
    const sum = kernel.reduce((a, b) => a + b, 0);
    return kernel.map((weight) => weight / sum);
  });
  const out = new Float32Array(Math.round((sound.length * RATE) / from));
  const step = (from * phases) / RATE;
  for (let i = 0; i < out.length; i++) {
    const kernel = kernels[(i * step) % phases]!;
    const begin = Math.floor((i * step) / phases) + 1 - half;
    const [first, end] = [Math.max(0, -begin), Math.min(2 * half, sound.length - begin)];
    let sum = 0;
    for (let tap = first; tap < end; tap++) sum += kernel[tap]! * sound[begin + tap]!;
    out[i] = sum;
  }
  return out;
}

/** Decode a sound as the browser can: mono at `RATE`, the mean of its channels. */
export async function decodeSound(file: Blob): Promise<Float32Array> {
  const name = "name" in file ? String(file.name) : "this file";
  const bytes = new Uint8Array(await file.arrayBuffer());
  let decoded: AudioBuffer;
  try {
    decoded = await new OfflineAudioContext(1, 1, rateOf(bytes)).decodeAudioData(bytes.buffer);
  } catch {
    throw new TunerError(`${name} is not a sound that the browser can decode: choose another one, such as a WAV file`);
  }
  const { duration, length, sampleRate, numberOfChannels: count } = decoded;
  if (!(duration <= LONGEST_SECONDS)) throw new TunerError(`${name} takes ${Math.round(duration)} s, at most ${LONGEST_SECONDS} s are heard: cut it`);
  const channels = Array.from({ length: count }, (_, channel) => decoded.getChannelData(channel));
  const mean = count === 1 ? channels[0]! : Float32Array.from({ length }, (_, i) => channels.reduce((sum, values) => sum + values[i]!, 0) / count);
  return resample(mean, sampleRate);
}
