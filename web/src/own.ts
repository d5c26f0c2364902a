/** The user's earlier samples of a bundle with a trained tail: a round trains on them, is asked for them, and brings them on. */

import type { Bundle, TrainInfo } from "./bundle.ts";
import { type Bytes, TunerError } from "./bytes.ts";
import { Replay } from "./codec.ts";
import { markOf } from "./mark.ts";
import type { Sample } from "./model.ts";
import type { Target } from "./target.ts";
import { type TensorFile, tensorOf, writeTensors } from "./tensors.ts";

const OWN = "train/own.safetensors";
const MOST = 2000;
/** The class of samples without any. */
const NONE = -1;

export class Own {
  readonly #marks = new Map<Float32Array, number>();

  private constructor(
    /** Samples that did not come again, without those that did: their newer labels count. */
    public before: Replay,
    private readonly train: TrainInfo,
    private readonly file?: TensorFile,
  ) {}

  /** Read the samples of a bundle; of one that holds none, nothing is kept. */
  static async of(bundle: Bundle, replay: Replay): Promise<Own> {
    const { train } = bundle.info;
    if (!bundle.has(OWN)) return new Own(replay.emptied(), train!);
    const file = await bundle.tensors(OWN);
    const own = Replay.read(file);
    if (own.marks.length !== own.length || own.codec.recordBytes !== replay.codec.recordBytes) {
      throw new TunerError("the user's earlier samples must have marks, and codes like the others': export again");
    }
    return new Own(replay.emptied().extended(own.records, own.labels, own.marks), train!, file);
  }

  /** Take over the marks of samples that come, by their features, and leave out what a bundle has of the same. */
  come(features: readonly Float32Array[], samples: readonly Sample[]): void {
    if (!this.file) return;
    features.forEach((row, i) => this.#marks.set(row, markOf(samples[i]!)));
    const come = new Set(this.#marks.values());
    const { marks } = this.before;
    this.before = this.before.select([...marks.keys()].filter((row) => !come.has(marks[row]!)));
  }

  marksOf(features: readonly Float32Array[]): number[] | undefined {
    return this.file && features.map((row) => this.#marks.get(row)!);
  }

  /** Return what the next bundle brings, of earlier and of new samples; nothing where this one does not. */
  kept(samples: Replay): Replay | undefined {
    if (!this.file) return undefined;
    const both = this.before.extended(samples.records, samples.labels, samples.marks);
    const last = new Map(both.marks.map((mark, row) => [mark, row])); // of a sample that came twice, the newer
    const once = both.select([...last.values()].sort((one, two) => one - two));
    const most = Math.min(MOST, Math.floor((this.train.own_bytes ?? 0) / once.codec.recordBytes));
    return once.select(everyClassAlike(once.labels, once.marks, most));
  }

  written(samples: Replay): Map<string, Bytes> {
    const kept = this.kept(samples);
    if (!kept || !this.file) return new Map();
    const tensors = new Map(this.file.tensors);
    const { type, shape } = tensorOf(this.file, "labels");
    const numbers = kept.labels.flatMap((label) => label);
    const codes = new Uint8Array(kept.length * kept.codec.recordBytes);
    kept.records.forEach((record, i) => codes.set(record, i * record.length));
    tensors.set("codes", { type: "U8", shape: [kept.length, kept.codec.recordBytes], data: codes });
    tensors.set("labels", { type, shape: [kept.length, ...shape.slice(1)], data: type === "F32" ? Float32Array.from(numbers) : BigInt64Array.from(numbers, BigInt) });
    tensors.set("marks", { type: "I64", shape: [kept.length], data: BigInt64Array.from(kept.marks, BigInt) });
    return new Map([[OWN, writeTensors({ tensors, metadata: this.file.metadata })]]);
  }
}

/** Return the rows of at most so many samples: as many of each class, or all that it has, those with the smallest marks. */
export function everyClassAlike(labels: readonly Target[], marks: readonly number[], most: number): number[] {
  const members = new Map<number, number[]>();
  const numbers = labels.some((label) => typeof label !== "number" && label.some((value) => value !== 0 && value !== 1));
  labels.forEach((label, row) => (numbers ? [NONE] : classesOf(label)).forEach((one) => members.set(one, [...(members.get(one) ?? []), row])));
  const ranked = [...members.values()].flatMap((rows) => {
    return rows.sort((one, two) => marks[one]! - marks[two]!).map((row, rank) => [rank, marks[row]!, row] as const);
  });
  ranked.sort((one, two) => one[0] - two[0] || one[1] - two[1] || one[2] - two[2]);
  return [...new Set(ranked.map(([, , row]) => row))].slice(0, most).sort((one, two) => one - two);
}

function classesOf(label: Target): number[] {
  if (typeof label === "number") return [label];
  const own = [...label.keys()].filter((row) => label[row]);
  return own.length ? own : [NONE];
}
