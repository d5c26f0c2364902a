/** Open what trains a bundle again; each way is loaded when a bundle asks for it. */

import { type Bundle, EXITS, SOLVED, unlearnable } from "./bundle.ts";
import { TunerError } from "./bytes.ts";
import { Replay } from "./codec.ts";
import type { Model } from "./model.ts";
import type { Runtime } from "./session.ts";
import type { Trainer } from "./trainer.ts";

/** Open the trainer of a bundle. */
export async function openTrainer(bundle: Bundle, runtime: Runtime, model: Model): Promise<Trainer> {
  const { train } = bundle.info;
  const refusal = unlearnable(bundle.info);
  if (!train || refusal) throw new TunerError(refusal);
  const samples = await Promise.all(
    ["train/replay.safetensors", "train/check.safetensors"].map(async (name) => Replay.read(await bundle.tensors(name))),
  );
  const parts = [bundle, model, samples[0]!, samples[1]!] as const;
  if (train.kind === EXITS) return (await import("./exiting.ts")).ExitingTrainer.made(runtime, ...parts);
  if (train.kind === SOLVED) return (await import("./solving.ts")).SolvingTrainer.made(...parts);
  return (await import("./stepping.ts")).SteppingTrainer.made(runtime, ...parts);
}
