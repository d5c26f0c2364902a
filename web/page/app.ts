/** The page: photos in, answers and corrections, learning, going back, saving. */

import { Client, type Opened } from "../src/client.ts";
import type { Verdict } from "../src/gate.ts";

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
let labels: readonly string[] = [];
let busy = false;

function say(text: string): void {
  byId("status").textContent = text;
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
  labels = [...opened.labels].sort((one, two) => one.localeCompare(two));
  byId("name").textContent = opened.name;
  document.title = `${opened.name}: a bundle in the browser`;
  byId("photos").replaceChildren();
  files.disabled = button.camera.disabled = false;
  await show();
  say(`Ready: ${labels.length} labels${opened.threads > 1 ? `, ${opened.threads} threads` : ""}.`);
  document.body.dataset["ready"] = String(Math.round(performance.now()));
}

/** Show what is kept, and which round is in use. */
async function show(): Promise<void> {
  const status = await client.call("status");
  const kept = await client.call("samples");
  const enough = status.samples >= LEAST;
  const more = enough ? "" : `; learning needs at least ${LEAST}`;
  byId("count").textContent = status.trainable
    ? `${status.samples} of your photos have a label${more}.`
    : "This bundle does not learn in the browser: export it with --trainable, without exits.";
  byId("round").textContent =
    status.round === "0000" ? "The model is in use as it was exported." : `Round ${status.round} is in use.`;
  button.learn.disabled = busy || !status.trainable || !enough;
  button.back.disabled = busy || !status.canGoBack;
  button.save.disabled = busy;
  button.forget.disabled = busy || (!status.samples && !status.canGoBack);
  byId("kept").replaceChildren(
    ...kept.map(({ identity, label, pixels, size }) => {
      const canvas = element("canvas", { width: size, height: size });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `a photo of ${label}`);
      canvas.getContext("2d")?.putImageData(new ImageData(pixels, size, size), 0, 0);
      const remove = element("button", { type: "button", onclick: () => void attempt(() => dropped(identity)) }, "Remove");
      remove.setAttribute("aria-label", `Remove this photo of ${label}`);
      return element("li", {}, canvas, element("span", {}, label), remove);
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
      byId("photos").prepend(card(photo, answer.handle, answer.label, answer.probability));
    });
  }
  say(photos.length === 1 ? "1 photo was answered." : `${photos.length} photos were answered.`);
}

function card(photo: Blob, handle: number, label: string, probability: number): HTMLLIElement {
  const picture = element("img", { src: URL.createObjectURL(photo), alt: `a photo, answered as ${label}` });
  picture.onload = () => URL.revokeObjectURL(picture.src);
  const sure = element("meter", { min: 0, max: 1, value: probability });
  sure.setAttribute("aria-label", `confidence ${percent(probability)}`);
  const right = element("select", {}, ...labels.map((name) => element("option", { value: name }, name)));
  right.value = label;
  right.setAttribute("aria-label", "The right label");
  const keep = element("button", { type: "button" }, "Keep with this label");
  keep.onclick = () =>
    void attempt(async () => {
      await client.call("keep", handle, right.value);
      keep.textContent = `Kept as ${right.value}`;
      await show();
      say(`The photo is kept as ${right.value}.`);
    });
  right.onchange = () => (keep.textContent = "Keep with this label");
  const answer = element("p", { className: "answer" }, `${label}, ${percent(probability)}`);
  return element("li", {}, picture, answer, sure, right, keep);
}

async function learn(): Promise<void> {
  const bar = byId<HTMLProgressElement>("progress");
  busy = true;
  await show();
  bar.hidden = false;
  say("Learning…");
  try {
    const verdict = await client.watch("learn", (share) => (bar.value = share));
    decided(verdict);
    say(verdict.accepted ? "Learned: the new model is in use." : "The model stays as it was.");
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
    await show();
    say("Went back one round.");
  });
button.forget.onclick = () =>
  void attempt(async () => {
    if (!confirm("Remove all photos and rounds from this browser?")) return;
    await client.call("forget");
    byId("verdict").hidden = true;
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
