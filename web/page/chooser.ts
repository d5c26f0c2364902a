/** What a person gives the right label with: one, several, or numbers. */

import { SEPARATOR } from "../src/target.ts";
import { byId, element } from "./element.ts";
import type { Answer } from "./grid.ts";

/** Most labels that have a button. */
const MOST_BUTTONS = 12;
export const short = (value: number): string => String(Number(value.toPrecision(4)));

export class Chooser {
  #boxes: HTMLInputElement[] = [];
  readonly #text = byId<HTMLInputElement>("label");
  readonly #buttons = byId("labels");

  constructor(
    private readonly labels: readonly string[],
    private readonly multi: boolean,
    private readonly numbers: boolean,
    /** Why a label that is typed must be one of the bundle's, and the way out; empty where it need not. */
    fixed: string,
  ) {
    const why = byId("fixed");
    why.textContent = fixed;
    why.hidden = true;
    this.#text.oninput = () => (why.hidden = !fixed || !this.value || labels.some((label) => label.startsWith(this.value)));
    this.#text.hidden = multi || numbers;
    this.#text.placeholder = fixed ? "another label" : "another or a new label";
    byId("all-labels").replaceChildren(...(this.#text.hidden ? [] : labels.map((value) => element("option", { value }))));
    this.#buttons.replaceChildren();
  }

  /** Offer labels for photos that are answered so; those that are most frequent in `used` have a button each. */
  offer(answer: Answer | undefined, used: ReadonlyMap<string, number>, give: (label: string) => void): void {
    this.#text.value = "";
    byId("fixed").hidden = true;
    if (this.numbers) {
      this.#boxes = this.labels.map((_, i) => element("input", { type: "number", step: "any", value: answer?.values ? short(answer.values[i]![1]) : "" }));
      this.#buttons.replaceChildren(this.#fields(`The right number${this.labels.length > 1 ? "s" : ""}`, true));
    } else if (this.multi) {
      const own = new Set(answer?.labels?.map(([label]) => label));
      this.#boxes = this.labels.map((value) => element("input", { type: "checkbox", value, checked: own.has(value) }));
      this.#buttons.replaceChildren(this.#fields("The right labels", false));
    } else {
      const order = [...new Set([...this.labels, ...used.keys()])].sort((one, two) => (used.get(two) ?? 0) - (used.get(one) ?? 0));
      const shown = order.slice(0, MOST_BUTTONS).sort((one, two) => one.localeCompare(two, undefined, { numeric: true }));
      this.#buttons.replaceChildren(...shown.map((label) => element("button", { type: "button", onclick: () => give(label) }, label)));
    }
  }

  /** Return what was ticked or typed, as it is kept; empty where that is not complete. */
  get value(): string {
    if (this.multi) return this.#boxes.filter(({ checked }) => checked).map(({ value }) => value).join(SEPARATOR);
    if (!this.numbers) return this.#text.value.trim();
    return this.#boxes.every(({ value }) => value) ? this.#boxes.map(({ value }) => value).join(SEPARATOR) : "";
  }

  #fields(legend: string, before: boolean): HTMLElement {
    const lines = this.#boxes.map((box, i) => element("label", {}, ...(before ? [`${this.labels[i]!} `, box] : [box, ` ${this.labels[i]!}`])));
    return element("fieldset", {}, element("legend", {}, legend), ...lines);
  }
}
