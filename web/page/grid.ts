/** The photos of the page: their answers, which are chosen, and which are kept. */

import type { Answer, Kept } from "../src/client.ts";
import { drawn, element } from "./element.ts";

export type { Answer };

/** A photo: one that was asked about, or one that was kept before the page was opened. */
export interface Tile {
  readonly element: HTMLLIElement;
  readonly button: HTMLButtonElement;
  readonly identity: string;
  /** Where the worker has the photo; nothing of one that was kept before. */
  readonly handle?: number;
  answer?: Answer;
}

export type View = "new" | "kept";

/** A finger that chooses photos so many pixels from the edge of the list, or beyond it, scrolls. */
const EDGE = 24;

/** How answers and kept labels are written. */
export interface Words {
  answer(answer: Answer): string;
  /** What photos with this answer are put together under; empty where they are not. */
  group(answer: Answer): string;
  label(label: string): string;
  /** What a picture is called that has no name. */
  name(): string;
}

/** A finger or the mouse that went down on a photo, and is over another one, or was. */
interface Sweep {
  readonly from: Tile;
  readonly before: readonly Tile[];
  to?: Tile;
}

export class Grid {
  readonly #tiles = new Map<string, Tile>();
  readonly #chosen = new Set<Tile>();
  #kept = new Map<string, string>();
  #last: Tile | undefined;
  #sweep: Sweep | undefined;
  #number = 0;

  constructor(
    private readonly list: HTMLUListElement,
    private readonly words: Words,
    private readonly changed: () => void,
  ) {
    document.addEventListener("pointermove", ({ buttons, clientX, clientY }) => buttons & 1 && this.#swept(clientX, clientY));
    for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(() => this.#end())); // after the click
  }

  get view(): View {
    return this.list.dataset["view"] as View;
  }

  set view(view: View) {
    this.list.dataset["view"] = view;
    this.choose([]);
    this.arrange();
  }

  /** Identities of all photos on the page. */
  get identities(): string[] {
    return [...this.#tiles.keys()];
  }

  /** Photos of a view, as they stand. */
  of(view: View): Tile[] {
    const standing = [...this.list.children];
    const tiles = [...this.#tiles.values()].filter(({ identity }) => this.#kept.has(identity) === (view === "kept"));
    return tiles.sort((one, two) => standing.indexOf(one.element) - standing.indexOf(two.element));
  }

  /** Chosen photos, as they stand. */
  get chosen(): Tile[] {
    return this.of(this.view).filter((tile) => this.#chosen.has(tile));
  }

  labelOf({ identity }: Tile): string | undefined {
    return this.#kept.get(identity);
  }

  clear(): void {
    this.#tiles.clear();
    this.#chosen.clear();
    this.#kept.clear();
    this.list.replaceChildren();
  }

  /** Add a photo with its answer; one that is there already is replaced. */
  add(picture: HTMLElement, answer: Answer): Tile {
    const tile = this.#add(picture, answer.identity, answer.handle);
    this.answered(tile, answer);
    return tile;
  }

  /** Show what is kept: photos that are not on the page are added to it. */
  keeps(kept: readonly Kept[]): void {
    this.#kept = new Map(kept.map(({ identity, label }) => [identity, label]));
    for (const { identity, picture } of kept) {
      if (!this.#tiles.has(identity) && picture) this.#add(drawn(picture, this.words.name()), identity);
    }
    for (const tile of this.#tiles.values()) {
      if (tile.handle === undefined && !this.#kept.has(tile.identity)) this.drop(tile);
      else this.#mark(tile);
    }
    this.choose([]);
    this.arrange();
  }

  /** Show another answer to a photo. */
  answered(tile: Tile, answer: Answer): void {
    tile.answer = answer;
    tile.button.querySelector(".answer")!.textContent = this.words.answer(answer);
    const sure = tile.button.querySelector("meter")!;
    sure.hidden = Boolean(answer.values);
    if (answer.values) return;
    sure.value = answer.probability;
    sure.setAttribute("aria-label", `confidence ${Math.round(100 * answer.probability)} %`);
  }

  /** Put photos of one answer, or of one kept label, together, the least sure ones first. */
  arrange(): void {
    const groups = new Map<string, Tile[]>();
    for (const tile of this.of(this.view)) {
      const label = this.labelOf(tile);
      const name = label !== undefined ? this.words.label(label) : tile.answer ? this.words.group(tile.answer) : "";
      groups.set(name, [...(groups.get(name) ?? []), tile]);
    }
    for (const old of this.list.querySelectorAll(".group")) old.remove();
    for (const [name, tiles] of [...groups].sort(([one], [two]) => one.localeCompare(two, undefined, { numeric: true }))) {
      const all = element("button", { type: "button", onclick: () => this.#toggle(tiles) }, `${name} (${tiles.length})`);
      if (name) this.list.append(element("li", { className: "group" }, all));
      if (this.view === "new") tiles.sort((one, two) => (one.answer?.probability || 0) - (two.answer?.probability || 0));
      this.list.append(...tiles.map((tile) => tile.element));
    }
    this.changed();
  }

  /** Choose these photos, and no others. */
  choose(tiles: readonly Tile[]): void {
    this.#choose(tiles);
    this.changed();
  }

  #choose(tiles: readonly Tile[]): void {
    this.#chosen.clear();
    for (const tile of tiles) this.#chosen.add(tile);
    for (const { button } of this.#tiles.values()) button.setAttribute("aria-pressed", "false");
    for (const { button } of tiles) button.setAttribute("aria-pressed", "true");
  }

  #toggle(tiles: readonly Tile[]): void {
    const others = [...this.#chosen].filter((tile) => !tiles.includes(tile));
    this.choose(tiles.every((tile) => this.#chosen.has(tile)) ? others : [...others, ...tiles]);
  }

  /** Choose a photo, or let go of it; with the shift key, all from the last one on. */
  #tap(tile: Tile, range: boolean): void {
    if (this.#sweep?.to) return;
    if (range) this.choose([...new Set([...this.#chosen, ...this.#between(this.#last ?? tile, tile)])]);
    else this.#toggle([tile]);
    this.#last = tile;
  }

  /** Choose all photos from the one where a finger or the mouse went down to the one where it is, or let go of them. */
  #swept(x: number, y: number): void {
    if (!this.#sweep) return;
    const { top, bottom } = this.list.getBoundingClientRect();
    if (this.#sweep.to) this.list.scrollBy(0, y > bottom - EDGE ? EDGE : y < top + EDGE ? -EDGE : 0);
    const button = document.elementFromPoint(x, y)?.closest("button.tile");
    const to = [...this.#tiles.values()].find((tile) => tile.button === button);
    if (!to || to === (this.#sweep.to ?? this.#sweep.from)) return;
    const { from, before } = this.#sweep;
    this.#sweep.to = to;
    const over = this.#between(from, to);
    const others = before.filter((tile) => !over.includes(tile));
    this.#choose(before.includes(from) ? others : [...others, ...over]);
    this.#last = to;
  }

  /** What is below the photos appears when the finger goes up: else it came under it. */
  #end(): void {
    const swept = this.#sweep?.to;
    this.#sweep = undefined;
    if (swept) this.changed();
  }

  /** Return all photos from one to another, as they stand. */
  #between(one: Tile, two: Tile): Tile[] {
    const shown = this.of(this.view);
    const [from, to] = [shown.indexOf(one), shown.indexOf(two)].sort((a, b) => a - b) as [number, number];
    return shown.slice(from < 0 ? to : from, to + 1);
  }

  #add(picture: HTMLElement, identity: string, handle?: number): Tile {
    const before = this.#tiles.get(identity);
    if (before) this.drop(before);
    const parts = [element("span", { className: "as" }), element("span", { className: "answer" }), element("meter", { min: 0, max: 1, hidden: true })];
    const button = element("button", { type: "button", className: "tile" }, picture, ...parts);
    button.setAttribute("aria-pressed", "false");
    const item = element("li", {}, button);
    item.dataset["photo"] = String(this.#number++);
    const tile: Tile = { element: item, button, identity, ...(handle === undefined ? {} : { handle }) };
    button.onclick = (event) => this.#tap(tile, event.shiftKey);
    button.onpointerdown = () => (this.#sweep = { from: tile, before: this.chosen });
    button.ondragstart = () => false;
    this.#tiles.set(identity, tile);
    this.#mark(tile);
    this.list.append(item);
    return tile;
  }

  /** Take a photo off the page. */
  drop(tile: Tile): void {
    this.#tiles.delete(tile.identity);
    this.#chosen.delete(tile);
    tile.element.remove();
  }

  #mark(tile: Tile): void {
    const label = this.labelOf(tile);
    tile.element.classList.toggle("kept", label !== undefined);
    tile.button.querySelector(".as")!.textContent = label === undefined ? "" : `✓ ${this.words.label(label)}`;
  }
}
