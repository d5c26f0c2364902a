/** The page: photos or sounds in, answers, labels for many at once, learning, going back, saving. */

import { Client, type Photo } from "../src/client.ts";
import type { Change, Status } from "../src/learner.ts";
import { decodeSound, type Patching } from "../src/sound.ts";
import { SEPARATOR } from "../src/target.ts";
import { Chooser, short } from "./chooser.ts";
import { aboutClips, byId, drawn, element, reword } from "./element.ts";
import { type Answer, Grid, type Tile, type View } from "./grid.ts";
import { Camera, clipsOf, Microphone } from "./live.ts";
import { Timeline } from "./timeline.ts";
import { duration, percent, showVerdict } from "./verdict.ts";

const LEAST = 10;
const client = new Client(new Worker(new URL("worker.js", import.meta.url), { type: "module" }));
const [files, bundle] = [byId<HTMLInputElement>("files"), byId<HTMLInputElement>("bundle")];
const ids = ["camera", "all", "right", "remove", "undo", "keep", "learn", "more", "back", "save", "forget", "shoot", "stop", "cut", "view-new", "view-kept"] as const;
const button = Object.fromEntries(ids.map((id) => [id, byId<HTMLButtonElement>(id)])) as Record<(typeof ids)[number], HTMLButtonElement>;
const photos = (count: number): string => worded(count === 1 ? "1 photo" : `${count} photos`);

/** Something that a person did, and how it is undone. */
interface Done {
  readonly name: string;
  readonly undo: () => Promise<void>;
}

let labels: readonly string[] = [];
let multi = false;
let numbers = false;
let chooser: Chooser | undefined;
let offered: Tile | undefined;
let status: Status | undefined;
let done: Done[] = [];
let busy = false;
/** Of a bundle of sounds. */
let patching: Patching | undefined;

const grid = new Grid(byId("photos"), { answer: answered, group: grouped, label: named, name: () => worded("a photo") }, update);
const timeline = new Timeline();
const camera = new Camera();
const microphone = new Microphone(listened, () => (button.shoot.disabled = !microphone.ready));

/** Return a sentence about photos as it is of what the bundle takes. */
function worded(text: string): string {
  return patching ? aboutClips(text) : text;
}

function say(text: string): void {
  byId("status").textContent = text;
}

/** Return a kept label as a person reads it; of numbers, each after its name. */
function named(label: string): string {
  const parts = label.split(SEPARATOR);
  return numbers ? parts.map((value, i) => `${labels[i]} ${value}`).join("; ") : parts.join(" and ");
}

function answered({ label, labels: over, probability, values }: Answer): string {
  if (values) return values.map(([name, value]) => `${name} ${short(value)}`).join("; ");
  const text = (over ?? [[label, probability] as const]).map(([one, share]) => `${one}, ${percent(share)}`).join("; ");
  return text || `nothing is sure; most likely ${label}, ${percent(probability)}`;
}

function grouped({ label, labels: over, values }: Answer): string {
  if (values) return "";
  return over ? over.map(([one]) => one).sort().join(" and ") || "nothing is sure" : label;
}

/** Return the label that an answer stands for; empty where it is none. */
function labelOf({ label, labels: over }: Answer): string {
  return over ? over.map(([one]) => one).join(SEPARATOR) : label;
}

/** Do something that may fail, and show in a line why it did. */
async function attempt(work: () => Promise<void>): Promise<void> {
  const error = byId("error");
  error.hidden = true;
  error.textContent = "";
  try {
    await work();
  } catch (reason) {
    error.textContent = worded(reason instanceof Error ? reason.message : String(reason));
    error.hidden = false;
    say("");
  }
}

async function open(from: string | Blob): Promise<void> {
  say("Loading the model…");
  const threads = Number(new URLSearchParams(location.search).get("threads")) || undefined; // to measure with
  const opened = await client.call("open", from, new URL("ort/", import.meta.url).href, threads);
  if (opened.kind !== "images" && !opened.patching) throw new Error(`this page takes photos and sounds, but the bundle takes ${opened.kind}`);
  closeLive();
  patching = opened.patching;
  reword(Boolean(patching));
  files.accept = patching ? "audio/*" : "image/*";
  [multi, numbers] = [opened.multi, opened.numbers];
  byId("name").textContent = opened.name;
  document.title = `${opened.name}: a bundle in the browser`;
  byId("verdict").hidden = true;
  [labels, done] = [[], []];
  grid.clear();
  files.disabled = button.camera.disabled = false;
  await show();
  const answer = numbers ? (labels.length > 1 ? "numbers" : "number") : labels.length > 1 ? "labels" : "label";
  say(`Ready: ${labels.length} ${answer}${opened.threads > 1 ? `, ${opened.threads} threads` : ""}.`);
  document.body.dataset["ready"] = String(Math.round(performance.now()));
}

/** Show what is kept, and which round is in use. */
async function show(): Promise<void> {
  status = await client.call("status");
  const ordered = numbers ? status.labels : [...status.labels].sort((one, two) => one.localeCompare(two, undefined, { numeric: true }));
  if (ordered.join(SEPARATOR) !== labels.join(SEPARATOR)) {
    labels = ordered;
    chooser = new Chooser(labels, multi, numbers, status.fixed);
    offered = undefined;
  }
  byId("round").textContent = status.round === "0000" ? "The model is in use as it was exported." : `Round ${status.round} is in use.`;
  grid.keeps(await client.call("samples", grid.identities));
}

/** Show what can be done with the photos that are chosen. */
function update(): void {
  if (!status) return;
  const [fresh, kept, chosen] = [grid.of("new"), grid.of("kept"), grid.chosen];
  const tiles = grid.view === "new" ? fresh : kept;
  const alone = chosen.length === 1 ? chosen[0] : undefined;
  timeline.show(alone);
  button.cut.hidden = busy || grid.view === "kept" || clipsOf(alone && timeline.soundOf(alone)).length < 2;
  button["view-new"].textContent = `To label (${fresh.length})`;
  button["view-kept"].textContent = `Kept (${kept.length})`;
  button["view-new"].setAttribute("aria-pressed", String(grid.view === "new"));
  button["view-kept"].setAttribute("aria-pressed", String(grid.view === "kept"));
  byId("empty").hidden = byId("about").hidden = tiles.length > 0;
  byId("empty").textContent = grid.view === "kept" ? worded("No photo is kept yet.") : fresh.length + kept.length ? worded("All photos are kept.") : worded("Choose photos, or drop them here: each is answered, and you say which answers are right.");
  byId("labelling").hidden = !chosen.length;
  const hint = chosen.length === 1 && tiles.length > 1 ? ", drag for more" : "";
  byId("chosen").textContent = `${photos(chosen.length)} chosen${hint}. ${chosen.length > 1 ? "Their" : "Its"} ${numbers ? "number" : "label"}${multi || labels.length > 1 && numbers ? "s" : ""}:`;
  button.keep.textContent = `Keep ${chosen.length}`;
  if (chosen[0] && chosen[0] !== offered) chooser?.offer(chosen[0].answer, used(), (label) => void attempt(() => keep(label)));
  offered = chosen[0];
  button.all.textContent = tiles.length && chosen.length === tiles.length ? "None" : "Choose all";
  button.all.disabled = busy || !tiles.length;
  button.right.hidden = grid.view === "kept";
  button.right.textContent = `Keep ${right().length || ""} as answered`.replace("  ", " ");
  button.right.disabled = busy || !right().length;
  button.remove.hidden = grid.view === "new";
  button.remove.textContent = `Remove ${chosen.length || ""}`.trim();
  button.remove.disabled = busy || !chosen.length;
  button.undo.disabled = busy || !done.length;
  button.undo.setAttribute("aria-label", done.length ? `Undo: ${done.at(-1)!.name}` : "Undo");
  const missing = LEAST - status.samples;
  const added = [...new Set(kept.map((tile) => grid.labelOf(tile)!))].filter((label) => !multi && !numbers && !labels.includes(label));
  const more = missing > 0 ? `; ${missing} more to learn` : added.length ? `; new: ${added.join(", ")}` : "";
  byId("count").textContent = worded(status.refusal) || `${photos(status.samples)} kept${more}.`;
  button.learn.disabled = button.more.disabled = busy || Boolean(status.refusal) || missing > 0;
  button.back.disabled = busy || !status.canGoBack;
  button.save.disabled = busy;
  button.forget.disabled = busy || (!status.samples && !status.canGoBack);
}

/** Return how often each label is answered or kept. */
function used(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const tile of [...grid.of("new"), ...grid.of("kept")]) {
    const label = grid.labelOf(tile) ?? tile.answer?.label;
    if (label !== undefined) counts.set(label, (counts.get(label) ?? 0) + 1);
  }
  return counts;
}

/** Return the photos whose answers may be kept: the chosen ones, or all. */
function right(): Tile[] {
  const tiles = grid.chosen.length ? grid.chosen : grid.of("new");
  return tiles.filter(({ answer }) => answer && labelOf(answer));
}

/** Predict photos or sounds, one after the other; those that cannot be read are left out, and counted. */
async function ask(asked: readonly (Blob | Float32Array)[], name = "Clip"): Promise<void> {
  if (grid.view === "kept") grid.view = "new";
  byId("verdict").hidden = true;
  if (patching) grid.choose([]); // a clip whose timeline was shown
  const failed: unknown[] = [];
  let last: Tile | undefined;
  for (const [number, content] of asked.entries()) {
    say(`${patching ? "Listening to clip" : "Looking at photo"} ${number + 1} of ${asked.length}…`);
    last = await answerTo(content, name).catch((reason) => void failed.push(reason));
    update();
  }
  grid.arrange();
  await attempt(async () => {
    if (failed.length > 1) throw new Error(`${failed.length} files cannot be read; the first: ${(failed[0] as Error).message}`);
    if (failed.length) throw failed[0];
  });
  const count = asked.length - failed.length;
  if (count) say(`${photos(count)} ${count > 1 ? "were" : "was"} answered.`);
  if (patching && last && asked.length === 1 && !microphone.open) grid.choose([last]); // its timeline
}

/** Predict a photo or a sound, and show it; return its place on the page. */
async function answerTo(content: Blob | Float32Array, name: string): Promise<Tile> {
  if (patching) {
    const sound = content instanceof Blob ? await decodeSound(content) : content;
    const answer = await client.call("predict", sound);
    timeline.add(answer.identity, content instanceof File ? content.name : name, sound);
    return grid.add(drawn(answer.picture!, "a clip"), answer);
  }
  const photo = content as Blob;
  const picture = element("img", { src: URL.createObjectURL(photo), alt: "a photo" });
  picture.onload = () => URL.revokeObjectURL(picture.src);
  return grid.add(picture, await client.call("predict", photo));
}

/** Close the camera or the microphone. */
function closeLive(): void {
  camera.close();
  microphone.close();
  timeline.listen(false);
  byId("live").hidden = true;
}

/** Show what is heard in a second of the microphone. */
async function listened(second: number, sound: Float32Array): Promise<void> {
  await attempt(async () => {
    timeline.heard({ second, prediction: await client.call("hear", sound) });
    update();
  });
}

/** Show what the model that is now in use answers to the photos on the page. */
async function answerAgain(): Promise<void> {
  for (const tile of [...grid.of("new"), ...grid.of("kept")]) {
    if (tile.handle === undefined) continue;
    await client.call("predict", tile.handle).then((answer) => grid.answered(tile, answer), () => {}); // one of long ago keeps its old answer
  }
  grid.arrange();
}

const placeOf = ({ handle, identity }: Tile): Photo["photo"] => (grid.view === "new" ? (handle ?? identity) : identity);

/** Keep the chosen photos with a label. */
async function keep(label: string): Promise<void> {
  if (!label) throw new Error(numbers ? "a number is missing: give all of them" : "there is no label: choose or type one");
  const chosen = grid.chosen;
  await keepAll(chosen.map((tile) => ({ photo: placeOf(tile), label })), `kept as ${named(label)}${multi || numbers || labels.includes(label) ? "" : ", a new label"}`);
}

async function keepAll(kept: readonly Photo[], what: string): Promise<void> {
  const changes = await client.call("keep", kept);
  did(`${photos(changes.length)} ${what}`, () => restore(changes));
  await show();
  say(`${photos(changes.length)} ${changes.length > 1 ? "are" : "is"} ${what}.`);
}

/** Return photos to what they were kept as before. */
async function restore(changes: readonly Change[]): Promise<void> {
  const kept = changes.filter(({ before }) => before !== undefined);
  await client.call("keep", kept.map(({ identity, before }) => ({ photo: identity, label: before! })));
  await client.call("remove", changes.filter(({ before }) => before === undefined).map(({ identity }) => identity));
}

function did(name: string, undo: () => Promise<void>): void {
  done.push({ name, undo });
}

async function learn(seconds?: number): Promise<void> {
  const bar = byId<HTMLProgressElement>("progress");
  busy = true;
  bar.removeAttribute("value"); // until it is known how far it is
  bar.hidden = false;
  byId("verdict").hidden = true;
  update();
  say("Learning…");
  const began = performance.now();
  try {
    const verdict = await client.watch("learn", (share) => (bar.value = share), ...(seconds === undefined ? [] : [seconds]));
    showVerdict(verdict, LEAST, worded);
    if (verdict.accepted) {
      did("learning", async () => goBack());
      await answerAgain();
    }
    const took = `after ${duration((performance.now() - began) / 1000)}`;
    say(verdict.accepted ? `Learned ${took}.` : `The model stays as it was, ${took}.`);
  } finally {
    busy = false;
    bar.hidden = true;
    await show();
  }
}

/** Return to the round before; what is learned again afterwards is undone by itself. */
async function goBack(): Promise<void> {
  await client.call("rollBack");
  byId("verdict").hidden = true;
  await answerAgain();
}

files.onchange = () => void ask([...(files.files ?? [])]).then(() => (files.value = ""));
bundle.onchange = () => void attempt(async () => open(bundle.files![0]!));
for (const view of ["new", "kept"] satisfies View[]) button[`view-${view}`].onclick = () => (grid.view = view);
button.all.onclick = () => grid.choose(button.all.textContent === "Choose all" ? grid.of(grid.view) : []);
button.right.onclick = () => void attempt(() => keepAll(right().map((tile) => ({ photo: placeOf(tile), label: labelOf(tile.answer!) })), "kept as answered"));
byId("labelling").onsubmit = (event) => (event.preventDefault(), void attempt(() => keep(chooser!.value)));
button.remove.onclick = () =>
  void attempt(async () => {
    const gone = grid.chosen.map((tile) => ({ identity: tile.identity, label: "", before: grid.labelOf(tile)! }));
    await client.call("remove", gone.map(({ identity }) => identity));
    did(`${photos(gone.length)} removed`, () => restore(gone));
    await show();
    say(`${photos(gone.length)} ${gone.length > 1 ? "are" : "is"} removed.`);
  });
button.undo.onclick = () =>
  void attempt(async () => {
    const last = done.at(-1)!;
    busy = true; // a second click in the meantime is not for the same
    update();
    try {
      await last.undo();
      done = done.filter((one) => one !== last); // what failed can be undone again; what was done meanwhile stays
      say(`Undone: ${last.name}.`);
    } finally {
      busy = false;
      await show();
    }
  });
button.learn.onclick = () => void attempt(() => learn());
button.more.onclick = () => void attempt(() => learn(Infinity));
button.back.onclick = () =>
  void attempt(async () => {
    await goBack();
    const at = done.findLastIndex(({ name }) => name === "learning");
    if (at >= 0) done.splice(at, 1);
    await show();
    say("Went back one round.");
  });
button.forget.onclick = () =>
  void attempt(async () => {
    if (!confirm(worded("Remove all photos and rounds from this browser?"))) return;
    await client.call("forget");
    done = [];
    byId("verdict").hidden = true;
    await show();
    await answerAgain();
    say(worded("All photos and rounds are removed."));
  });
button.save.onclick = () =>
  void attempt(async () => {
    const link = element("a", { href: URL.createObjectURL(await client.call("zip")), download: `${byId("name").textContent}.zip` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    say("The bundle is saved as a zip, which tuner predict reads.");
  });

const drop = byId("asking");
drop.ondragover = (event) => (event.preventDefault(), drop.classList.add("over"));
drop.ondragleave = () => drop.classList.remove("over");
drop.ondrop = (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  void ask([...(event.dataTransfer?.files ?? [])]);
};

button.camera.onclick = () =>
  void attempt(async () => {
    if (patching) await microphone.start(patching);
    else await camera.start();
    timeline.listen(microphone.open);
    byId("live").hidden = false;
    update();
    button[patching ? "stop" : "shoot"].focus();
  });
button.shoot.onclick = () =>
  void attempt(async () => {
    if (patching) return ask([microphone.take()], "Microphone");
    const photo = await camera.take();
    if (photo) await ask([photo]);
  });
button.stop.onclick = () => {
  closeLive();
  update();
  button.camera.focus();
};
button.cut.onclick = () =>
  void attempt(async () => {
    const [whole] = grid.chosen;
    const clips = clipsOf(timeline.soundOf(whole!));
    grid.drop(whole!);
    await ask(clips);
  });

void attempt(async () => {
  await open(new URL("../", import.meta.url).href);
  if ("serviceWorker" in navigator) await navigator.serviceWorker.register("sw.js", { type: "module" });
});
Object.assign(window, { tuner: client });
