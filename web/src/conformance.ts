/** Whether this runtime computes from a bundle what its conformance set holds. */

import { ADAPTERS, type Bundle, EXITS, SOLVED } from "./bundle.ts";
import type { ExitingTrainer } from "./exiting.ts";
import { type Bytes, decode, TunerError } from "./bytes.ts";
import { judgeCheck, judgeEarlier, judgeSamples } from "./gate.ts";
import { Hearing } from "./hearing.ts";
import { fit, type Pixels } from "./image.ts";
import { Model, type Sample } from "./model.ts";
import { Replay } from "./codec.ts";
import type { Runtime } from "./session.ts";
import { StepSession, type Noise, type Weights } from "./step.ts";
import { floats, readTensors, tensorOf, type Tensor } from "./tensors.ts";
import type { Target } from "./target.ts";
import type { TailTrainer } from "./trainer.ts";
import { openTrainer } from "./trainers.ts";

const MOST_CALIBRATED = 64;

export interface Check {
  readonly name: string;
  readonly difference: number;
  readonly tolerance: number;
  readonly values: number;
}

interface GateCase {
  readonly confidence: number;
  readonly global_drop: number;
  readonly least: number;
  readonly old: string;
  readonly new: string;
  readonly known: string;
  readonly labelled: boolean;
  readonly old_cost: number;
  readonly new_cost: number;
  readonly adds?: boolean;
  readonly check: { readonly exported: string; readonly old: string; readonly new: string } | null;
  readonly earlier?: { readonly old: string; readonly new: string; readonly others: string } | null;
  readonly accepted: boolean;
  readonly bounds: readonly [number, number] | null;
}

interface Content {
  readonly format: number;
  readonly bundle: string;
  readonly tolerances: Readonly<Record<string, number>>;
  readonly images: readonly string[];
  readonly batches: readonly (readonly number[])[];
  readonly gate: readonly GateCase[];
}

/** Returns the content of a file of the set. */
export type Files = (name: string) => Promise<Bytes | undefined>;

/** The noise of the set's steps, the same in every language. */
export const ruledNoise: Noise = (out, port, step) => {
  for (let i = 0; i < out.length; i++) {
    out[i] = ((Math.imul(i, 2654435761 | 0) + step * 40503 + port * 97) >>> 8) / 2 ** 24;
  }
};

/** Compare; pictures are compared only where something decodes them. */
export async function conformance(
  bundle: Bundle,
  runtime: Runtime,
  files: Files,
  decodeImage?: (content: Bytes, name: string) => Promise<Pixels>,
): Promise<Check[]> {
  const [json, file] = [await files("conformance.json"), await files("conformance.safetensors")];
  if (!json || !file) throw new TunerError("there is no conformance set: tuner bundle conformance BUNDLE writes one");
  const content = JSON.parse(decode(json)) as Content;
  if (content.format !== 1 || content.bundle !== bundle.identity) throw new TunerError("the set is another bundle's");
  const set = readTensors(file);
  const checks: Check[] = [];
  const compare = (name: string, found: ArrayLike<number>): void => {
    const expected = floats(tensorOf(set, `expected.${name}`));
    const tolerance = content.tolerances[name.split(".")[0]!]!;
    let difference = expected.length === found.length ? 0 : NaN;
    for (let i = 0; i < expected.length; i++) {
      const scale = tolerance < 1 ? Math.max(1, Math.abs(expected[i]!)) : 1;
      const own = Math.abs(found[i]! - expected[i]!) / scale;
      if (!(own <= difference)) difference = own;
    }
    checks.push({ name, difference, tolerance, values: found.length });
  };
  const model = await Model.open(bundle, runtime);
  const samples = split(tensorOf(set, "given.samples"));
  const exits: number[][][] = Array.from({ length: model.exits }, () => []);
  const [inputs, left, sure]: [number[], number[], number[]] = [[], [], []];
  for (const sample of samples) {
    for (const value of model.input(sample)) inputs.push(value);
    (await model.logits(sample)).forEach((row, exit) => exits[exit]!.push([...row]));
    const { exit, probability, values } = await model.predict(sample);
    left.push(exit);
    sure.push(...(values?.map(([, value], i) => value / bundle.info.targets!.std[i]!) ?? [probability]));
  }
  if (set.tensors.has("expected.unknown")) {
    const told = await Model.open(bundle, runtime, true);
    const found: number[] = [];
    for (const sample of samples) found.push((await told.predict(sample)).unknown!);
    compare("unknown", found);
    await told.release();
  }
  if (set.tensors.has("expected.pieces")) {
    const hearing = await Hearing.open(bundle, runtime);
    const patches = await hearing.patches(tensorOf(set, "given.content").data as Float32Array);
    compare("pieces", patches.flatMap((patch) => [...patch]));
    await hearing.release();
  }
  compare("normalised", inputs);
  compare("logits", exits.flat(2));
  compare("left_at", left);
  compare("probabilities", sure);
  for (const name of decodeImage ? content.images : []) {
    const image = await files(`images/${name}`);
    if (image) compare(`image.${name}`, fit(await decodeImage!(image, name), bundle.info.input));
  }
  if (set.tensors.has("expected.replay")) {
    const replay = Replay.read(await bundle.tensors("train/replay.safetensors"));
    const first = replay.features([...replay.labels.keys()].slice(0, 2));
    compare("replay", first);
    compare("codes", split(tensorOf(set, "given.features")).flatMap((row) => [...replay.codec.encode(row as Float32Array)]));
    if (bundle.info.train?.kind === SOLVED) {
      const trainer = (await openTrainer(bundle, runtime, model)) as TailTrainer;
      await trainer.train({ features: [], labels: [], places: [] });
      compare("solved", (await trainer.logits(first, 2)).flatMap((row) => [...row]));
    } else if (content.batches.length) {
      await steps(bundle, runtime, replay, content.batches, compare);
      if (set.tensors.has("expected.calibrated")) {
        const trainer = (await openTrainer(bundle, runtime, model)) as ExitingTrainer;
        const { targets, calibrated } = await trainer.recalibrated(MOST_CALIBRATED);
        compare("targets", targets);
        compare("calibrated", calibrated);
        await trainer.release();
      }
    }
  }
  const wrong = content.gate.filter((one) => !decidedAlike(one)).length;
  checks.push({ name: "gate", difference: wrong, tolerance: 0, values: content.gate.length });
  await model.release();
  return checks;
}

async function steps(
  bundle: Bundle,
  runtime: Runtime,
  replay: Replay,
  batches: Content["batches"],
  compare: (name: string, found: ArrayLike<number>) => void,
): Promise<void> {
  const plan = await bundle.plan();
  const exits = bundle.info.train?.kind === EXITS;
  const file = exits ? "train/exit0.onnx" : "train/step.onnx";
  const session = await StepSession.open(runtime, await bundle.file(file), await begin(bundle), ruledNoise);
  const [rates, losses]: [number[], number[]] = [[], []];
  for (const [number, rows] of batches.entries()) {
    const outputs = bundle.info.labels.length;
    const own = rows.map((row) => other(replay.labels[row]!, outputs));
    const labels = exits
      ? own.flatMap((label) => Array.from({ length: 2 * outputs }, (_, i) => (typeof label === "number" ? Number(i % outputs === label) : label[i % outputs]!)))
      : own.flat();
    const weights = rows.map((_, i) => (i % 2 ? plan.weight : 1));
    const rate = plan.recipe.rate(number, batches.length);
    rates.push(rate);
    losses.push(await session.step({ features: replay.features(rows), labels, weights, count: rows.length }, rate));
  }
  compare("rates", rates);
  compare("losses", losses);
  await session.release();
}

/** Return the label after a sample's own; of several labels, the others. */
function other(target: Target, outputs: number): Target {
  return typeof target === "number" ? (target + 1) % outputs : target.map((value) => 1 - value);
}

async function begin(bundle: Bundle): Promise<Weights> {
  if (bundle.info.train?.kind !== EXITS) {
    const weights = (await bundle.tensors("weights.safetensors")).tensors;
    if (bundle.info.train?.kind !== ADAPTERS) return weights;
    const initial = (await bundle.tensors("train/adapters.safetensors")).tensors;
    const given = new Map<string, Tensor>();
    for (const [name, value] of weights) {
      const [layer, leaf] = [name.slice(0, name.lastIndexOf(".") + 1), name.slice(name.lastIndexOf(".") + 1)];
      given.set(name, value).set(`${layer}parametrizations.${leaf}.original`, value);
    }
    return new Map([...given, ...initial]);
  }
  const state = (await bundle.tensors("exits.safetensors")).tensors;
  return new Map([...state].filter(([name]) => name.startsWith("0.")).map(([name, value]) => [name.slice(2), value]));
}

function split(tensor: Tensor): Sample[] {
  const count = tensor.shape[0]!;
  const data = tensor.data as Uint8Array | Float32Array;
  const size = data.length / count;
  return Array.from({ length: count }, (_, i) => data.slice(i * size, (i + 1) * size));
}

function decidedAlike(one: GateCase): boolean {
  const flags = (text: string): boolean[] => [...text].map((letter) => letter === "1");
  const rules = { confidence: one.confidence, globalDrop: one.global_drop, least: one.least };
  const comparison = {
    old: flags(one.old),
    new: flags(one.new),
    known: flags(one.known),
    labelled: one.labelled,
    oldCost: one.old_cost,
    newCost: one.new_cost,
    adds: one.adds ?? false,
  };
  const { check, earlier } = one;
  const global = check ? { exported: flags(check.exported), old: flags(check.old), new: flags(check.new) } : undefined;
  let verdict = judgeSamples(comparison, rules);
  if (verdict.accepted || (verdict.open && global)) {
    verdict = judgeCheck(verdict, global, rules);
    if (earlier) verdict = judgeEarlier(verdict, { old: flags(earlier.old), new: flags(earlier.new), others: flags(earlier.others) }, rules);
  }
  const alike = (verdict.bounds === undefined) === (one.bounds === null);
  const close = one.bounds?.every((bound, i) => Math.abs(bound - verdict.bounds![i]!) < 1e-6) ?? true;
  return verdict.accepted === one.accepted && alike && close;
}
