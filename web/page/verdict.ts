/** What the gate says of a new model. */

import type { Verdict } from "../src/gate.ts";
import { byId } from "./element.ts";

/** Return a share as text that stays on one line. */
export const percent = (share: number): string => `${Math.round(100 * share)}\u00a0%`;
export const duration = (seconds: number): string => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`);

/** Show it; below `least` samples, nothing is said of how to go on. Its sentences are of photos, which `worded` changes. */
export function showVerdict(verdict: Verdict, least: number, worded: (text: string) => string): void {
  const { samples, before, after, unjudged = 0, seconds = 0 } = verdict;
  const open = !verdict.accepted && unjudged > 0;
  const more = byId<HTMLButtonElement>("more");
  byId("verdict").hidden = false;
  const decision = verdict.accepted ? "The new model is in use" : "The new model was refused, the old one stays";
  byId("decision").textContent = worded(open
    ? `Not decided, the old model stays: ${samples} of ${samples + unjudged} photos were judged in the time, ${before} right before, ${after} after.`
    : `${decision}: ${verdict.reason}.${verdict.accepted || samples < least ? "" : " Check your labels under Kept, or add photos."}`);
  more.hidden = !open;
  more.textContent = `Take more time (about ${duration(seconds)})`;
  byId("before").textContent = `${before} of ${samples}`;
  byId("after").textContent = `${after} of ${samples}`;
  for (const [name, from, to] of [["earlier", verdict.earlierBefore, verdict.earlierAfter], ["global", verdict.globalBefore, verdict.globalAfter]] as const) {
    byId(name).hidden = from === undefined;
    byId(`${name}-before`).textContent = from === undefined ? "" : percent(from);
    byId(`${name}-after`).textContent = to === undefined ? "" : percent(to);
  }
}
