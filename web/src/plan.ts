/** The plan: the part of TOML that plan.toml uses, and what training reads from it. */

import { TunerError } from "./bytes.ts";

export type Value = string | number | boolean | Value[] | Table;
export interface Table {
  [key: string]: Value;
}

export interface Recipe {
  readonly epochs: number;
  readonly batchSize: number;
  readonly learningRate: number;
  /** Returns the learning rate of a step, of so many. */
  readonly rate: (step: number, steps: number) => number;
  readonly normsTrain: boolean;
}

/** What exits learn, and what leaving early may cost. */
export interface Heads {
  readonly supervised: number;
  readonly distilled: number;
  readonly temperature: number;
  readonly against: string;
  readonly confidence: number;
  readonly perExit: boolean;
}

export interface Plan {
  readonly recipe: Recipe;
  readonly heads: Heads;
  readonly weight: number;
  readonly balance: boolean;
  readonly augment: number;
  readonly operations: readonly string[];
}

/** Read a plan. */
export function readPlan(content: string): Plan {
  const table = readToml(content);
  const of = (name: string): Table => (table[name] ?? {}) as Table;
  const [recipe, heads, data, cache, task] = [of("recipe"), of("heads"), of("data"), of("cache"), of("task")];
  const plan = {
    recipe: {
      epochs: Number(recipe["epochs"]),
      batchSize: Number(recipe["batch_size"]),
      learningRate: Number(recipe["learning_rate"]),
      rate: readSchedule(recipe),
      normsTrain: recipe["freeze_bn"] === false,
    },
    heads: {
      supervised: Number(heads["supervised"] ?? 0),
      distilled: Number(heads["distilled"] ?? 1),
      temperature: Number(heads["temperature"] ?? 4),
      against: String(heads["against"] ?? "original"),
      confidence: Number(heads["confidence"] ?? 0.5),
      perExit: heads["per_exit"] === true,
    },
    weight: Number(data["weight"] ?? 1),
    balance: data["balance"] === true,
    augment: Number(cache["augment"] ?? 0),
    operations: ((task["augment"] ?? []) as string[]).filter((name) => !((cache["left_out"] ?? []) as string[]).includes(name)),
  };
  const { epochs, batchSize, learningRate } = plan.recipe;
  if (!(epochs >= 1 && batchSize >= 1 && learningRate > 0)) throw new TunerError("plan.toml has no recipe: export again");
  return plan;
}

function readSchedule({ schedule = "cosine", epochs, learning_rate, decay_rate, decay_steps, milestones }: Table): Recipe["rate"] {
  const first = Number(learning_rate);
  if (schedule === "constant") return () => first;
  if (schedule === "warmup" || schedule === "wsd") {
    return (step, steps) => {
      const risen = Math.min(1, (step + 1) / Math.max(1, Math.min(32, Math.floor(steps / Number(epochs)))));
      return first * risen * (schedule === "wsd" ? Math.min(1, (steps - step) / (0.2 * steps)) : 1);
    };
  }
  if (schedule === "cosine") return (step, steps) => first * 0.5 * (1 + Math.cos((Math.PI * step) / steps));
  if (schedule === "exponential") return (step) => first * Number(decay_rate ?? 1) ** (step / Number(decay_steps ?? 1));
  if (schedule !== "steps") throw new TunerError(`plan.toml has the schedule ${schedule}, which is not known here: update device-tuner`);
  const later = (milestones ?? []) as [number, number][];
  return (step) => later.filter(([from]) => from <= step).at(-1)?.[1] ?? first;
}

/** Read TOML of tables, numbers, strings without line breaks, Booleans and arrays: all that a plan has. */
export function readToml(content: string): Table {
  const top: Table = {};
  let table = top;
  let at = 0;
  const blank = (): void => {
    for (let match; (match = /^(?:\s+|#[^\n]*)/.exec(content.slice(at, at + 4000))); ) at += match[0].length;
  };
  const take = (pattern: RegExp): string => {
    const match = pattern.exec(content.slice(at, at + 20_000));
    if (!match || match.index) throw new TunerError(`plan.toml cannot be read at ${content.slice(at, at + 20)}`);
    at += match[0].length;
    return match[0];
  };
  const pair = (into: Table): void => {
    const key = take(/^(?:[\w-]+|"[^"\n]*")/).replace(/^"|"$/g, "");
    take(/^\s*=\s*/);
    into[key] = value();
  };
  const value = (): Value => {
    if (content[at] === '"') return JSON.parse(take(/^"(?:[^"\\\n]|\\.)*"/)) as string;
    if (content[at] === "'") return take(/^'[^'\n]*'/).slice(1, -1);
    if (content[at] === "{") {
      const inline: Table = {};
      for (at++, blank(); content[at] !== "}"; blank()) {
        pair(inline);
        blank();
        if (content[at] === ",") at++;
      }
      at++;
      return inline;
    }
    if (content[at] !== "[") {
      const word = take(/^[\w.+-]+/);
      return word === "true" || word === "false" ? word === "true" : Number(word.replaceAll("_", ""));
    }
    const values: Value[] = [];
    for (at++, blank(); content[at] !== "]"; blank()) {
      values.push(value());
      blank();
      if (content[at] === ",") at++;
    }
    at++;
    return values;
  };
  for (blank(); at < content.length; blank()) {
    if (content[at] === "[") {
      const [, listed, path] = /^\[(\[?)([^\]\n]*)\]\]?$/.exec(take(/^[^\n]*/).trim()) ?? [];
      if (path === undefined) throw new TunerError("plan.toml has a table without a name");
      table = top;
      const keys = path.split(".").map((key) => key.trim().replace(/^["']|["']$/g, ""));
      keys.forEach((key, depth) => {
        if (listed && depth === keys.length - 1) ((table[key] ??= []) as Value[]).push({});
        const next = (table[key] ??= {});
        table = (Array.isArray(next) ? next.at(-1) : next) as Table;
      });
      continue;
    }
    pair(table);
  }
  return top;
}
