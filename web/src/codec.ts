/** Features of samples as codes of few bits, and back. */

import { product, roundEven, TunerError } from "./bytes.ts";
import { labelsOf, type Target } from "./target.ts";
import { floats, half, type TensorFile, tensorOf, toHalves } from "./tensors.ts";

/** Converts features to records, and back; `shape` is one sample's, channels first. */
export class Codec {
  readonly elements: number;
  readonly #positions: number;
  readonly #scaleBytes: number;

  constructor(
    readonly bits: number,
    readonly shape: readonly number[],
    readonly low: Float32Array | null,
    readonly high: Float32Array | null,
    readonly perSample: boolean,
  ) {
    this.elements = product(shape);
    this.#positions = this.elements / shape[0]!;
    this.#scaleBytes = perSample ? 2 * shape[0]! : 0;
    if (![32, 16, 8, 4, 2, 1].includes(bits) || (bits <= 8) !== (low !== null && high !== null)) {
      throw new TunerError(`features of ${bits} bits lack their scales: export again`);
    }
  }

  get recordBytes(): number {
    return this.#scaleBytes + Math.ceil((this.elements * this.bits) / 8);
  }

  /** Write the features of a record to `out`. */
  decode(record: Uint8Array, out: Float32Array): void {
    if (this.bits > 8) {
      const view = new DataView(record.buffer, record.byteOffset, record.length);
      for (let i = 0; i < this.elements; i++) {
        out[i] = this.bits === 32 ? view.getFloat32(4 * i, true) : half(view.getUint16(2 * i, true));
      }
      return;
    }
    const planes = 8 / this.bits;
    const width = Math.ceil(this.elements / planes);
    const mask = 2 ** this.bits - 1;
    const channels = this.shape[0]!;
    const whole = this.bits === 8 && !this.perSample;
    for (let channel = 0, i = 0; channel < channels; channel++) {
      const span = Math.fround(this.high![channel]! - this.low![channel]!);
      const step = Math.fround(span / (this.perSample ? 255 : mask));
      const low = this.low![channel]!;
      const end = i + this.#positions;
      if (whole) for (; i < end; i++) out[i] = Math.fround(record[i]! * step) + low;
      for (; i < end; i++) {
        const byte = record[this.#scaleBytes + (i % width)]!;
        let code = (byte >> (Math.floor(i / width) * this.bits)) & mask;
        if (this.perSample) code = (record[channel]! + code * record[channels + channel]!) & 255;
        out[i] = Math.fround(code * step) + low;
      }
    }
  }

  /** Return the record of a sample's features. */
  encode(features: Float32Array): Uint8Array<ArrayBuffer> {
    if (features.length !== this.elements || !features.every(Number.isFinite)) {
      throw new TunerError("the frozen blocks give features that are not finite, or of another shape");
    }
    if (this.bits > 8) {
      return new Uint8Array(
        this.bits === 32 ? features.slice().buffer : toHalves(features).buffer,
      ) as Uint8Array<ArrayBuffer>;
    }
    const record = new Uint8Array(this.recordBytes);
    const master = this.#master(features);
    if (this.bits === 8) return master;
    const bits = this.perSample ? this.#ownBits(master, record) : this.#narrowed(master);
    const width = record.length - this.#scaleBytes;
    bits.forEach((code, i) => {
      const at = this.#scaleBytes + (i % width);
      record[at] = record[at]! | (code << (Math.floor(i / width) * this.bits));
    });
    return record;
  }

  #master(features: Float32Array): Uint8Array<ArrayBuffer> {
    const codes = new Uint8Array(this.elements);
    for (let i = 0; i < this.elements; i++) {
      const channel = Math.floor(i / this.#positions);
      const span = Math.fround(this.high![channel]! - this.low![channel]!);
      const unit = Math.fround(255 / span);
      const level = Math.fround(Math.fround(features[i]! - this.low![channel]!) * (Number.isFinite(unit) ? unit : 0));
      codes[i] = roundEven(Math.min(255, Math.max(0, level)));
    }
    return codes;
  }

  #narrowed(master: Uint8Array): Uint8Array {
    const ratio = 255 / (2 ** this.bits - 1);
    return master.map((code) => Math.floor((code + (ratio >> 1)) / ratio));
  }

  /** Return the bits of a sample with scales of its own, which are written into its record. */
  #ownBits(master: Uint8Array, record: Uint8Array): Uint8Array {
    const bits = new Uint8Array(this.elements);
    const channels = this.shape[0]!;
    for (let channel = 0; channel < channels; channel++) {
      const begin = channel * this.#positions;
      const values = master.subarray(begin, begin + this.#positions);
      const total = values.reduce((sum, value) => sum + value, 0);
      const mean = Math.floor(total / this.#positions);
      let [count, above] = [0, 0];
      values.forEach((value, i) => {
        if (value <= mean) return;
        bits[begin + i] = 1;
        count++;
        above += value;
      });
      const first = roundEven((total - above) / (this.#positions - count));
      record[channel] = first;
      record[channels + channel] = (count ? roundEven(above / count) : first) - first;
    }
    return bits;
  }
}

/** Stored features of samples with their labels: those that are trained on again, or that forgetting is measured on. */
export class Replay {
  private constructor(
    readonly codec: Codec,
    readonly records: readonly Uint8Array[],
    readonly labels: readonly Target[],
    /** What the user's own samples are known again by; see `markOf`. None of others. */
    readonly marks: readonly number[] = [],
  ) {}

  static read(file: TensorFile): Replay {
    const { metadata } = file;
    if (metadata["format"] !== "1") throw new TunerError("stored features are of another version: update");
    const shape = (metadata["shape"] ?? "").split(" ").map(Number);
    const scale = (name: string): Float32Array | null =>
      file.tensors.has(name) ? Float32Array.from(floats(tensorOf(file, name))) : null;
    const codec = new Codec(Number(metadata["bits"]), shape, scale("low"), scale("high"), metadata["per_sample"] === "true");
    const codes = tensorOf(file, "codes").data as Uint8Array;
    const rows = labelsOf(tensorOf(file, "labels"));
    if (codes.length !== rows.length * codec.recordBytes) throw new TunerError("stored features are damaged: export again");
    const size = codec.recordBytes;
    const marks = Array.from((file.tensors.get("marks")?.data ?? []) as ArrayLike<bigint>, Number);
    if (marks.length && marks.length !== rows.length) throw new TunerError("stored features are damaged: export again");
    return new Replay(codec, rows.map((_, i) => codes.subarray(i * size, (i + 1) * size)), rows, marks);
  }

  get length(): number {
    return this.records.length;
  }

  /** Return these samples, followed by others; without marks, of both. */
  extended(records: readonly Uint8Array[], labels: readonly Target[], marks?: readonly number[]): Replay {
    return new Replay(this.codec, [...this.records, ...records], [...this.labels, ...labels], marks && [...this.marks, ...marks]);
  }

  emptied(): Replay {
    return new Replay(this.codec, [], []);
  }

  select(rows: readonly number[]): Replay {
    const marks = this.marks.length ? rows.map((row) => this.marks[row]!) : [];
    return new Replay(this.codec, rows.map((row) => this.records[row]!), rows.map((row) => this.labels[row]!), marks);
  }

  /** Return features of some samples, one after the other. */
  features(rows: readonly number[]): Float32Array {
    const size = this.codec.elements;
    const out = new Float32Array(rows.length * size);
    rows.forEach((row, i) => this.codec.decode(this.records[row]!, out.subarray(i * size, (i + 1) * size)));
    return out;
  }
}
