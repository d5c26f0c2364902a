/** A bundle's files, wherever they are: every one is checked by its hash before it is used. */

import { type Bytes, decode, digest, sha256, TunerError } from "./bytes.ts";
import { readPlan, type Plan } from "./plan.ts";
import { readTensors, type TensorFile } from "./tensors.ts";
import { readZip } from "./zip.ts";

export interface InputSpec {
  readonly kind: string;
  readonly size?: number | null;
  readonly resize?: number | null;
  /** Of windows: how far one begins after the other. */
  readonly hop?: number | null;
  readonly mean: readonly number[];
  readonly std: readonly number[];
}

export interface Exits {
  readonly segments: readonly string[];
  readonly shares: readonly number[];
  readonly thresholds: readonly number[];
  readonly temperatures: readonly number[];
  /** Drop of accuracy that the thresholds are chosen for. */
  readonly tolerance: number;
  readonly reference_accuracy?: number;
  readonly calibration_samples?: number;
  readonly labelled?: boolean;
  /** Latency of a sample that leaves at each exit, where the bundle was exported. */
  readonly seconds?: readonly number[];
  readonly front?: readonly { readonly threshold: number; readonly accuracy: number; readonly mean_latency_seconds: number }[];
}

export interface TrainInfo {
  readonly format: number;
  readonly kind: string;
  readonly weights?: readonly string[];
  readonly cut?: number;
  readonly folds?: number;
  /** Number of the user's own samples whose features the bundle holds; the most bytes of these, of a tail. */
  readonly own_samples?: number;
  readonly own_bytes?: number;
}

export interface BundleInfo {
  readonly format: number;
  readonly name: string;
  readonly labels: readonly string[];
  readonly input: InputSpec;
  readonly input_shape: readonly number[];
  readonly loss: string;
  readonly files: Readonly<Record<string, string>>;
  readonly exits?: Exits;
  /** Of a regression: a value is mean + std · logit. */
  readonly targets?: { readonly mean: readonly number[]; readonly std: readonly number[] };
  readonly train?: TrainInfo;
  readonly label_thresholds?: readonly number[];
  /** Labels that a sample has by one name: its own, and those that are more general. */
  readonly label_map?: Readonly<Record<string, readonly string[]>>;
  /** From which distance on a sample is none of the user's classes. */
  readonly unknown?: { readonly format: number; readonly threshold: number };
  readonly parent?: string | null;
  readonly scores?: { readonly untouched?: Record<string, number> };
  readonly [other: string]: unknown;
}

/** Returns the content of a file; undefined where there is none. */
export type Source = (name: string) => Promise<Bytes | undefined>;

export const FILE = "bundle.json";
/** What a bundle trains: a tail by steps, exits, a tail with adapters, a head in closed form. */
export const [TAIL, EXITS, ADAPTERS, SOLVED] = ["tail", "exits", "adapters", "closed-form"] as const;
/** A sample has one label, or may have several. */
const [SINGLE, MULTI] = ["single-label", "multi-label"] as const;
const MOST_FILES = 1000;
const MOST_JSON = 16_000_000;

/** Return what fetches the files of a server's folder. */
export function fetched(folder: string): Source {
  const base = new URL(folder.endsWith("/") ? folder : `${folder}/`, globalThis.location?.href);
  return async (name) => {
    const url = new URL(name.split("/").map(encodeURIComponent).join("/"), base);
    const response = await fetch(url).catch(() => fetch(url)); // in Firefox, the first that a new service worker answers fails
    return response.ok ? new Uint8Array(await response.arrayBuffer()) : undefined;
  };
}

/** A bundle, whose files are read when they are used. */
export class Bundle {
  readonly #source: Source;

  private constructor(
    source: Source,
    readonly info: BundleInfo,
    /** SHA-256 of bundle.json, which holds the hash of every file. */
    readonly identity: string,
    readonly json: Bytes,
    /** The bundle that this one is made from, and the files that it has instead; see `with`. */
    readonly from?: Bundle,
    readonly changed: ReadonlyMap<string, Bytes> = new Map(),
  ) {
    this.#source = source;
  }

  /** Open a bundle. */
  static async open(source: Source): Promise<Bundle> {
    const json = await source(FILE);
    if (!json) throw new TunerError(`there is no ${FILE}: give the folder or the zip of a bundle`);
    let info: BundleInfo;
    try {
      if (json.length > MOST_JSON) throw new Error("too long");
      info = JSON.parse(decode(json)) as BundleInfo;
    } catch {
      throw new TunerError(`${FILE} is not JSON: copy the bundle again`);
    }
    check(info);
    return new Bundle(source, info, sha256(json), json);
  }

  /** Open a bundle in a folder of a server. */
  static async fetch(folder: string): Promise<Bundle> {
    return Bundle.open(fetched(folder));
  }

  /** Open a bundle in a zip, with or without a folder around it. */
  static async unzip(content: Bytes): Promise<Bundle> {
    const files = await readZip(content);
    const marks = [...files.keys()].filter((name) => name === FILE || name.endsWith(`/${FILE}`));
    const mark = marks.sort((one, two) => one.length - two.length)[0] ?? FILE;
    const above = mark.slice(0, -FILE.length);
    return Bundle.open(async (name) => files.get(above + name));
  }

  /** Return a file's content. */
  async file(name: string): Promise<Bytes> {
    const hash = Object.hasOwn(this.info.files, name) ? this.info.files[name] : undefined;
    const content = hash === undefined ? undefined : await this.#source(name);
    if (!content) throw new TunerError(`the bundle lacks ${name}: copy the whole folder`);
    if ((await digest(content)) !== hash) throw new TunerError(`${name} is not what was exported (its hash differs)`);
    return content;
  }

  has(name: string): boolean {
    return Object.hasOwn(this.info.files, name);
  }

  async tensors(name: string): Promise<TensorFile> {
    return readTensors(await this.file(name));
  }

  async plan(): Promise<Plan> {
    return readPlan(decode(await this.file("plan.toml")));
  }

  /** Return the bundle with other files, and what it then says of itself; it keeps its identity. */
  with(info: BundleInfo, files: ReadonlyMap<string, Bytes>): Bundle {
    return new Bundle(async (name) => files.get(name) ?? this.#source(name), info, this.identity, this.json, this, files);
  }

  /** Return every file, `bundle.json` last. */
  async files(): Promise<Map<string, Bytes>> {
    const files = new Map<string, Bytes>();
    for (const name of Object.keys(this.info.files)) files.set(name, await this.file(name));
    return files.set(FILE, this.json);
  }
}

function check(info: BundleInfo): void {
  if (info?.format !== 1) throw new TunerError(`bundle format ${info?.format} is not 1: update device-tuner`);
  const { labels, input, input_shape: shape, files, exits, targets } = info;
  const lists = [labels, input?.mean, input?.std, shape];
  if (!lists.every(Array.isArray) || !shape.every((size) => Number.isInteger(size) && size > 0) || !labels.length) {
    throw new TunerError(`${FILE} has no labels, or no shape of its input: export again`);
  }
  const scales = targets ? [targets.mean, targets.std] : [];
  if ((info.loss === "regression") !== !!targets || !scales.every((scale) => scale?.length === labels.length)) {
    throw new TunerError("a regression, and nothing else, must have targets with a mean and a deviation for each of its outputs: export again");
  }
  const names = Object.keys(files ?? {});
  const strays = names.filter((name) => name.startsWith("/") || name.split("/").includes("..") || name.includes("\\"));
  if (strays.length || names.length > MOST_FILES) throw new TunerError(`${FILE} names ${strays[0] ?? "too many files"}`);
  for (const name of exits ? exits.segments : ["model.onnx"]) {
    if (!names.includes(name)) throw new TunerError(`${FILE} has no hash of ${name}: export again`);
  }
  if (info.unknown && !(info.unknown.threshold > 0)) throw new TunerError("the threshold of unknown samples must be above 0: export again");
  if (exits && (exits.thresholds.length !== exits.segments.length - 1 || [exits.shares, exits.temperatures].some((one) => one?.length !== exits.segments.length))) {
    throw new TunerError("exits must have a share and a temperature for each segment and a threshold for each but the last: export again");
  }
}

/** Return why a bundle cannot learn here, and the way out; nothing where it can. */
export function unlearnable({ train, files }: BundleInfo): string {
  if (!train) return "This bundle cannot learn: export it with --trainable.";
  if (train.kind === EXITS && !("train/exit0.onnx" in files)) {
    return "This bundle has exits in closed form: they predict here, but learn in Python only, with tuner watch.";
  }
  const known: readonly string[] = [TAIL, EXITS, ADAPTERS, SOLVED];
  if (train.format !== 1 || !known.includes(train.kind)) return "This bundle learns in another way than this page knows: update device-tuner.";
  return "";
}

/** Return why a bundle cannot learn another label here, and the way out; nothing where it can. */
export function unextendable(info: BundleInfo): string {
  const refusal = unlearnable(info);
  if (refusal || !info.train) return refusal;
  const { kind } = info.train;
  if (kind === EXITS) return "This bundle cannot learn a new label, as each of its exits has a head of its own: export a trial without exits.";
  const way = info.loss === MULTI && kind === SOLVED ? ": run tuner labels add BUNDLE NAME PHOTOS on the device, and open the new bundle here." : ".";
  return info.loss === SINGLE ? "" : `This page teaches new labels only where a photo has one${way}`;
}
