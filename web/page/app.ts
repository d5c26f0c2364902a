/** The page: photos in, answers and corrections, learning, going back, saving. */

import { type Calls, Client, type Opened } from "../src/client.ts";
import type { Verdict } from "../src/gate.ts";
import { SEPARATOR } from "../src/target.ts";

const LEAST = 10;
const client = new Client(new Worker(new URL("worker.js", import.meta.url), { type: "module" }));
const byId = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const [files, bundle] = [byId<HTMLInputElement>("files"), byId<HTMLInputElement>("bundle")];
const buttons = ["camera", "learn", "back", "save", "forget", "shoot", "stop"] as const;
const button = Object.fromEntries(buttons.map((id) => [id, byId<HTMLButtonElement>(id)])) as Record<
  (typeof buttons)[number],
  HTMLButtonElement
>;
const percent = (share: number): string => `${Math.round(100 * share)} %`;
const short = (value: number): string => String(Number(value.toPrecision(4)));
let labels: readonly string[] = [];
let multi = false;
let numbers = false;
/** Ask about the photos on the page again. */
let shown: (() => Promise<void>)[] = [];
let busy = false;

function say(text: string): void {
  byId("status").textContent = text;
}

/** Return a kept label as a person reads it; of numbers, each after its name. */
function named(label: string): string {
  const parts = label.split(SEPARATOR);
  return numbers ? parts.map((value, i) => `${labels[i]} ${value}`).join("; ") : parts.join(" and ");
}

/** Return what the model answers with. */
function thing(several = labels.length > 1): string {
  return (numbers ? "number" : "label") + ((numbers ? labels.length > 1 : several) ? "s" : "");
}

/** Do something that may fail, and show in a line why it did. */
async function attempt(work: () => Promise<void>): Promise<void> {
  const error = byId("error");
  error.hidden = true;
  try {
    await work();
  } catch (reason) {
    error.textContent = reason instanceof Error ? reason.message : String(reason);
    error.hidden = false;
    say("");
  }
}

function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  values: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
}

async function open(from: string | Blob): Promise<void> {
  say("Loading the model…");
  const threads = Number(new URLSearchParams(location.search).get("threads")) || undefined; // to measure with
  const opened: Opened = await client.call("open", from, new URL("ort/", import.meta.url).href, threads);
  if (opened.kind !== "images") throw new Error(`this page takes photos, but the bundle takes ${opened.kind}`);
  [multi, numbers] = [opened.multi, opened.numbers];
  labels = numbers ? opened.labels : [...opened.labels].sort((one, two) => one.localeCompare(two));
  byId("name").textContent = opened.name;
  document.title = `${opened.name}: a bundle in the browser`;
  byId("photos").replaceChildren();
  shown = [];
  files.disabled = button.camera.disabled = false;
  await show();
  say(`Ready: ${labels.length} ${thing()}${opened.threads > 1 ? `, ${opened.threads} threads` : ""}.`);
  document.body.dataset["ready"] = String(Math.round(performance.now()));
}

/** Show what is kept, and which round is in use. */
async function show(): Promise<void> {
  const status = await client.call("status");
  const kept = await client.call("samples");
  const enough = status.samples >= LEAST;
  const more = enough ? "" : `; learning needs at least ${LEAST}`;
  const photos = status.samples === 1 ? "1 photo is" : `${status.samples || "No"} photos are`;
  byId("count").textContent = status.refusal || `${photos} kept to learn from${more}.`;
  byId("round").textContent =
    status.round === "0000" ? "The model is in use as it was exported." : `Round ${status.round} is in use.`;
  button.learn.disabled = busy || Boolean(status.refusal) || !enough;
  button.back.disabled = busy || !status.canGoBack;
  button.save.disabled = busy;
  button.forget.disabled = busy || (!status.samples && !status.canGoBack);
  byId("kept").replaceChildren(
    ...kept.map(({ identity, label, pixels, size }) => {
      const canvas = element("canvas", { width: size, height: size });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `a photo of ${named(label)}`);
      canvas.getContext("2d")?.putImageData(new ImageData(pixels, size, size), 0, 0);
      const remove = element("button", { type: "button", onclick: () => void attempt(() => dropped(identity)) }, "Remove");
      remove.setAttribute("aria-label", `Remove this photo of ${named(label)}`);
      return element("li", {}, canvas, element("span", {}, named(label)), remove);
    }),
  );
}

async function dropped(identity: string): Promise<void> {
  await client.call("remove", identity);
  await show();
}

/** Predict photos, one after the other. */
async function ask(photos: readonly Blob[]): Promise<void> {
  for (const [number, photo] of photos.entries()) {
    say(`Looking at photo ${number + 1} of ${photos.length}…`);
    await attempt(async () => {
      const answer = await client.call("predict", photo);
      byId("photos").prepend(card(photo, answer));
    });
  }
  say(photos.length === 1 ? "1 photo was answered." : `${photos.length} photos were answered.`);
}

type Answer = ReturnType<Calls["predict"]>;

/** Show what the model that is now in use answers to the photos on the page. */
async function answerAgain(): Promise<void> {
  const asked = shown;
  for (const again of asked) await again().catch(() => {}); // a photo of long ago keeps its old answer
}

function card(photo: Blob, given: Answer): HTMLLIElement {
  const picture = element("img", { src: URL.createObjectURL(photo) });
  picture.onload = () => URL.revokeObjectURL(picture.src);
  const sure = element("meter", { min: 0, max: 1 });
  const answer = element("p", { className: "answer" });
  const answered = ({ label, labels, probability, values }: Answer): void => {
    sure.hidden = Boolean(values);
    if (values) {
      answer.textContent = values.map(([name, value]) => `${name} ${short(value)}`).join("; ");
      picture.alt = `a photo, answered as ${answer.textContent}`;
      return;
    }
    const over = labels ?? [[label, probability] as const];
    const text = over.map(([one, share]) => `${one}, ${percent(share)}`).join("; ");
    answer.textContent = text || `nothing is sure; most likely ${label}, ${percent(probability)}`;
    picture.alt = `a photo, answered as ${over.map(([one]) => one).join(" and ") || "nothing"}`;
    sure.value = probability;
    sure.setAttribute("aria-label", `confidence ${percent(probability)}`);
  };
  answered(given);
  shown.push(async () => answered(await client.call("predict", given.handle)));
  const keep = element("button", { type: "button" });
  const own = given.labels?.map(([label]) => label) ?? [];
  const [right, chosen] = given.values ? measures(given.values) : multi ? several(own) : choice(given.label);
  const changed = (): void => {
    keep.textContent = `Keep with ${multi || (numbers && labels.length > 1) ? "these" : "this"} ${thing(multi)}`;
    keep.disabled = !chosen();
  };
  changed();
  right.onchange = changed;
  keep.onclick = () =>
    void attempt(async () => {
      const label = chosen();
      await client.call("keep", given.handle, label);
      keep.textContent = `Kept as ${named(label)}`;
      await show();
      say(`The photo is kept as ${named(label)}.`);
    });
  return element("li", {}, picture, answer, sure, right, keep);
}

/** Return what a person chooses the right label with, and what tells which is chosen. */
function choice(label: string): [HTMLElement, () => string] {
  const right = element("select", {}, ...labels.map((name) => element("option", { value: name }, name)));
  right.value = label;
  right.setAttribute("aria-label", "The right label");
  return [right, () => right.value];
}

/** Likewise where a photo may have several. */
function several(over: readonly string[]): [HTMLElement, () => string] {
  const boxes = labels.map((value) => element("input", { type: "checkbox", value, checked: over.includes(value) }));
  const lines = boxes.map((box) => element("label", {}, box, " ", box.value));
  const right = element("fieldset", {}, element("legend", {}, "The right labels"), ...lines);
  return [right, () => boxes.filter(({ checked }) => checked).map(({ value }) => value).join(SEPARATOR)];
}

/** Likewise where a model answers numbers. */
function measures(values: readonly (readonly [string, number])[]): [HTMLElement, () => string] {
  const boxes = values.map(([, value]) => element("input", { type: "number", step: "any", value: short(value) }));
  const lines = boxes.map((box, i) => element("label", {}, `${values[i]![0]} `, box));
  const right = element("fieldset", {}, element("legend", {}, `The right ${thing()}`), ...lines);
  return [right, () => (boxes.every(({ value }) => value) ? boxes.map(({ value }) => value).join(SEPARATOR) : "")];
}

async function learn(): Promise<void> {
  const bar = byId<HTMLProgressElement>("progress");
  busy = true;
  await show();
  bar.hidden = false;
  say("Learning…");
  const began = performance.now();
  try {
    const verdict = await client.watch("learn", (share) => (bar.value = share));
    decided(verdict);
    if (verdict.accepted) await answerAgain();
    const took = `after ${Math.max(1, Math.round((performance.now() - began) / 1000))} s`;
    say(verdict.accepted ? `Learned ${took}: the new model is in use.` : `The model stays as it was, ${took} of learning.`);
  } finally {
    busy = false;
    bar.hidden = true;
    await show();
  }
}

function decided(verdict: Verdict): void {
  byId("verdict").hidden = false;
  const decision = verdict.accepted ? "The new model is in use" : "The new model was refused, the old one stays";
  byId("decision").textContent = `${decision}: ${verdict.reason}.`;
  byId("before").textContent = `${verdict.before} of ${verdict.samples}`;
  byId("after").textContent = `${verdict.after} of ${verdict.samples}`;
  const { globalBefore, globalAfter } = verdict;
  byId("global").hidden = globalBefore === undefined;
  byId("global-before").textContent = globalBefore === undefined ? "" : percent(globalBefore);
  byId("global-after").textContent = globalAfter === undefined ? "" : percent(globalAfter);
}

files.onchange = () => void ask([...(files.files ?? [])]).then(() => (files.value = ""));
bundle.onchange = () => void attempt(async () => open(bundle.files![0]!));
button.learn.onclick = () => void attempt(learn);
button.back.onclick = () =>
  void attempt(async () => {
    await client.call("rollBack");
    byId("verdict").hidden = true;
    await answerAgain();
    await show();
    say("Went back one round.");
  });
button.forget.onclick = () =>
  void attempt(async () => {
    if (!confirm("Remove all photos and rounds from this browser?")) return;
    await client.call("forget");
    byId("verdict").hidden = true;
    await answerAgain();
    await show();
    say("All photos and rounds are removed.");
  });
button.save.onclick = () =>
  void attempt(async () => {
    const link = element("a", { href: URL.createObjectURL(await client.call("zip")), download: `${byId("name").textContent}.zip` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    say("The bundle is saved as a zip, which tuner predict reads.");
  });

const drop = byId("drop");
drop.ondragover = (event) => (event.preventDefault(), drop.classList.add("over"));
drop.ondragleave = () => drop.classList.remove("over");
drop.ondrop = (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  void ask([...(event.dataTransfer?.files ?? [])]);
};

const [live, video] = [byId("live"), byId<HTMLVideoElement>("video")];
button.camera.onclick = () =>
  void attempt(async () => {
    if (!navigator.mediaDevices) throw new Error("the browser gives a camera to pages of HTTPS or localhost only");
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    await video.play();
    live.hidden = false;
    button.shoot.focus();
  });
button.shoot.onclick = () =>
  void attempt(async () => {
    const canvas = element("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d")?.drawImage(video, 0, 0);
    const photo = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
    if (photo) await ask([photo]);
  });
button.stop.onclick = () => {
  for (const track of (video.srcObject as MediaStream | null)?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  live.hidden = true;
  button.camera.focus();
};

void attempt(async () => {
  await open(new URL("../", import.meta.url).href);
  if ("serviceWorker" in navigator) await navigator.serviceWorker.register("sw.js", { type: "module" });
});
Object.assign(window, { tuner: client });
