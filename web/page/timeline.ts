/** What is heard in a sound, by the second: a row for each label, over a picture of the sound. */

import type { Heard, Picture } from "../src/hearing.ts";
import { RATE } from "../src/sound.ts";
import { byId, drawn, element } from "./element.ts";
import type { Tile } from "./grid.ts";
import { percent } from "./verdict.ts";

/** Seconds of the microphone that are shown. */
const SHOWN = 20;
/** Of a WAV file with float32. */
const [HEADER, FLOAT] = [44, 3];
const across = (share: number): string => `${(100 * share).toFixed(2)}%`;

/** A time in which one label is heard. */
interface Stretch {
  readonly begin: number;
  end: number;
  readonly shares: number[];
}

/** Return when each label is heard, in the order in which they come; where a second may have several, each of them. */
export function stretchesOf(heard: readonly Heard[]): Map<string, Stretch[]> {
  const rows = new Map<string, Stretch[]>();
  for (const { second, prediction: { labels, label, probability } } of heard) {
    for (const [name, share] of labels ?? [[label, probability] as const]) {
      const row = rows.get(name) ?? [];
      rows.set(name, row);
      if (row.at(-1)?.end !== second) row.push({ begin: second, end: second, shares: [] });
      row.at(-1)!.end = second + 1;
      row.at(-1)!.shares.push(share);
    }
  }
  return rows;
}

export class Timeline {
  readonly #sounds = new Map<string, { readonly name: string; readonly sound: Float32Array }>();
  #live: Heard[] = [];
  #listening = false;
  #shown: unknown;

  /** Keep a sound, so that it can be played and cut. */
  add(identity: string, name: string, sound: Float32Array): void {
    this.#sounds.set(identity, { name, sound });
  }

  /** Return the sound of a clip, where the page has it: of those that were kept earlier, it has a picture alone. */
  soundOf({ identity }: Tile): Float32Array | undefined {
    return this.#sounds.get(identity)?.sound;
  }

  /** Show what is heard in one clip; else by the microphone, if that is open; else nothing. */
  show(tile: Tile | undefined): void {
    const kept = tile && this.#sounds.get(tile.identity);
    const answer = kept && tile.answer?.heard ? tile.answer : undefined;
    const what = answer ?? (this.#listening ? this.#live.length : undefined);
    if (what === this.#shown) return;
    this.#shown = what;
    byId("heard").hidden = what === undefined;
    const player = byId<HTMLAudioElement>("player");
    URL.revokeObjectURL(player.src);
    player.removeAttribute("src");
    player.hidden = !answer;
    if (answer && kept) {
      const seconds = kept.sound.length / RATE;
      player.src = URL.createObjectURL(writeWav(kept.sound));
      this.#draw(`${kept.name}, ${seconds.toFixed(1)} s`, answer.heard!, 0, seconds, answer.picture);
    } else if (this.#listening) {
      const end = (this.#live.at(-1)?.second ?? 0) + 1;
      const begin = Math.max(0, end - SHOWN);
      this.#draw("Microphone", this.#live.filter(({ second }) => second >= begin), begin, begin + SHOWN);
    }
  }

  /** Begin to show what the microphone hears, or end. */
  listen(on: boolean): void {
    [this.#listening, this.#live] = [on, []];
  }

  heard(one: Heard): void {
    this.#live = [...this.#live, one].slice(-SHOWN);
    this.#shown = undefined;
  }

  #draw(title: string, heard: readonly Heard[], begin: number, end: number, picture?: Picture): void {
    const length = end - begin;
    byId("sound").textContent = title;
    const rows = [...stretchesOf(heard)].map(([label, stretches]) => {
      const text = stretches.map((one) => `${one.begin} to ${Math.min(one.end, Math.ceil(end))} s`).join(", ");
      const lane = element("span", { className: "lane", role: "img", ariaLabel: text });
      for (const { begin: from, end: to, shares } of stretches) {
        const sure = shares.reduce((a, b) => a + b, 0) / shares.length;
        const bar = element("span", { title: `${label}, ${from} to ${to} s, ${percent(sure)}` });
        bar.style.left = across((from - begin) / length);
        bar.style.width = across((Math.min(to, end) - from) / length);
        bar.style.opacity = String(0.3 + 0.7 * sure);
        lane.append(bar);
      }
      return element("li", {}, element("span", { className: "name", title: label }, label), lane);
    });
    const drawing = picture ? [element("li", { ariaHidden: "true" }, element("span"), drawn(picture))] : [];
    const axis = element("li", { className: "axis", ariaHidden: "true" }, element("span"), element("span", {}, element("span", {}, `${begin} s`), element("span", {}, `${Number(end.toFixed(1))} s`)));
    byId("timeline").replaceChildren(...drawing, ...rows, axis);
  }
}

/** Write a mono sound at `RATE` as a WAV file. */
function writeWav(sound: Float32Array): Blob {
  const size = 4 * sound.length;
  const view = new DataView(new ArrayBuffer(HEADER + size));
  const text = (at: number, letters: string): void => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  (text(0, "RIFF"), text(8, "WAVEfmt "), text(36, "data"));
  for (const [at, value] of [[4, HEADER - 8 + size], [16, 16], [24, RATE], [28, 4 * RATE], [40, size]] as const) view.setUint32(at, value, true);
  for (const [at, value] of [[20, FLOAT], [22, 1], [32, 4], [34, 32]] as const) view.setUint16(at, value, true);
  sound.forEach((value, i) => view.setFloat32(HEADER + 4 * i, value, true));
  return new Blob([view], { type: "audio/wav" });
}
