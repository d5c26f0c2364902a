// Figures of a bundle in the browser next to native ones: node e2e/figures.mjs BUNDLE PHOTOS; pictures.mjs takes pictures.
// PHOTOS holds class folders of photos; the classes are among the bundle's labels. Of a bundle of sounds, it holds clips; the
// time of learning ten of a class that the bundle does not have is measured. $ROUNDS: how often both are measured
// in turns (default 15; 0: not at all). The ratio is the median over rounds, as another process disturbs single ones.
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { loadavg } from "node:os";
import { createInterface } from "node:readline";
import { ask, correct, filesOf, learn, open, PYTHON, ready, serve, shownAnswers } from "./browser.mjs";

const [bundle, photos] = process.argv.slice(2);
const ROUNDS = Number(process.env.ROUNDS ?? 15);
const TIMES = 5;
const BOUNDS = { predict: 2.5, step: 3 };
// for each line that it reads, it prints the seconds of so many predictions and training steps, on one thread
const NATIVE = `
import json, sys, time, numpy as np
from pathlib import Path
from tuner.bundle.format import Bundle
from tuner.bundle.tensors import read_tensors
from tuner.ort.training_step import StepSession
from tuner.runtime import Personaliser
bundle = Bundle.open(Path(sys.argv[1]))
model = Personaliser(bundle, threads=1)
sample = (np.arange(np.prod(bundle.input_shape)) % 251).astype(np.uint8).reshape(bundle.input_shape)
works = {"predict": lambda: model.predict(sample)}
if "train/step.onnx" in bundle.info.files:
    session = StepSession(bundle.file("train/step.onnx"), read_tensors(bundle.file("weights.safetensors")), 1)
    port, labels = session.layout.only("input"), session.layout.only("label")
    features = (np.arange(np.prod(port.shape)) % 17 / 17).astype(np.float32).reshape(port.shape)
    truth = np.zeros(labels.shape, labels.dtype)
    works["step"] = lambda: session.step(features, truth, 1e-5)
def timed(work):
    began = time.perf_counter(); work()
    return time.perf_counter() - began
for line in sys.stdin:
    print(json.dumps({name: [timed(work) for _ in range(int(line))] for name, work in works.items()}), flush=True)
`;
const median = (values) => [...values].sort((one, two) => one - two)[Math.floor(values.length / 2)];
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
const met = (value, bound, unit = "") => `at most ${bound}${unit} is wanted: ${value <= bound ? "met" : "NOT MET"}`;
const load = () => `load ${loadavg().map((value) => value.toFixed(1)).join(" ")}`;

// in a session of its own, as the browser is: where these share the processor by sessions, both get as much
const native = spawn(PYTHON, ["-c", NATIVE, bundle], { stdio: ["pipe", "pipe", "inherit"], detached: true });
const lines = createInterface(native.stdout)[Symbol.asyncIterator]();
async function natively(times) {
  native.stdin.write(`${times}\n`);
  return JSON.parse((await lines.next()).value);
}

async function figures(page, threads) {
  await page.goto(`${server.address}?threads=${threads}`);
  await ready(page);
  const here = (times) => page.evaluate((count) => tuner.call("measure", count), times);
  await here(30); // until its code is compiled well
  await natively(10);
  const rounds = [];
  for (let i = 0; i < ROUNDS; i++) {
    const [first, second] = i % 2 ? [here, natively] : [natively, here];
    const [one, two] = [await first(TIMES), await second(TIMES)];
    rounds.push(i % 2 ? { ours: one, theirs: two } : { ours: two, theirs: one });
  }
  for (const name of ["predict", "step"]) {
    if (!rounds[0].theirs[name]) continue;
    const ratio = median(rounds.map(({ ours, theirs }) => median(ours[name]) / median(theirs[name])));
    const all = (whose) => rounds.flatMap((round) => round[whose][name]);
    const times = ["ours", "theirs"].map((whose) => `median ${milliseconds(median(all(whose)))}, least ${milliseconds(Math.min(...all(whose)))}`);
    const least = Math.min(...all("ours")) / Math.min(...all("theirs"));
    console.log(`${name}, ${rounds[0].ours.threads} threads: ${times[0]}; native, 1 thread: ${times[1]}`);
    console.log(`  ratio ${ratio.toFixed(2)}, the median of ${ROUNDS} rounds of ${TIMES} in turns (of the least: ${least.toFixed(2)}); ${met(ratio, BOUNDS[name])}; ${load()}`);
  }
}

/** Print how long a new sound takes to be learned from ten clips, in rounds that are undone; and until all clips are answered anew. */
async function learnSound(page) {
  const { labels } = await page.evaluate(() => tuner.call("status"));
  const name = readdirSync(photos).find((one) => !labels.includes(one));
  const files = filesOf(`${photos}/${name}`);
  const clips = files.slice(0, 10);
  await ask(page, clips);
  await correct(page, clips.map(() => name));
  await page.evaluate(() => {
    const { watch } = tuner;
    tuner.watch = async (...values) => {
      const began = performance.now();
      const verdict = await watch.apply(tuner, values);
      if (values[0] === "learn") window.took = (performance.now() - began) / 1000;
      return verdict;
    };
  });
  const rounds = [];
  for (let round = 0; round < Math.max(1, ROUNDS); round++) {
    if (round) {
      await page.locator("#undo").click();
      await page.getByText("Undone: learning.").waitFor();
    }
    rounds.push({ ...(await learn(page)), learning: await page.evaluate(() => window.took) });
    if (!/is in use/.test(rounds.at(-1).decision)) throw new Error(rounds.at(-1).decision);
  }
  const of = (part) => rounds.map((round) => round[part]);
  const text = (seconds) => `median ${median(seconds).toFixed(2)} s, least ${Math.min(...seconds).toFixed(2)} s`;
  console.log(`learning ${name} from ${clips.length} clips, ${rounds.length} rounds: ${text(of("learning"))}; ${met(median(of("learning")), 2, " s")}`);
  console.log(`  from the press until they are answered anew: ${text(of("seconds"))}; ${load()}; ${rounds[0].decision}`);
  const others = files.slice(clips.length);
  const found = (await ask(page, others)).filter(([label]) => label === name).length;
  console.log(`${found} of ${others.length} other clips of ${name} are found`);
}

const server = await serve(bundle);
const { browser, context } = await open({ viewport: { width: 1280, height: 900 } });
try {
  const page = await context.newPage();
  await page.goto(server.address);
  const interactive = await ready(page);
  console.log(`interactive after ${interactive} ms; ${met(interactive, 3000, " ms")}; ${load()}`);
  const sounds = await page.evaluate(() => tuner.call("hear", new Float32Array(16_000)).then(() => true, () => false));
  for (const threads of ROUNDS && !sounds ? [2, 1] : []) await figures(page, threads);
  native.stdin.end();
  await (sounds ? learnSound(page) : learnPhotos(page));
} finally {
  native.kill();
  await browser.close();
  await server.end();
}

/** Print how long twenty photos take to be learned, and what that brings. */
async function learnPhotos(page) {
  await page.goto(server.address);
  await ready(page);
  const classes = readdirSync(photos).sort();
  const chosen = classes.flatMap((name) => filesOf(`${photos}/${name}`).slice(0, Math.ceil(20 / classes.length)).map((file) => [file, name])).slice(0, 20);
  const answers = await ask(page, chosen.map(([file]) => file));
  console.log(`${answers.filter(([label], i) => label === chosen[i][1]).length} of ${chosen.length} right as exported`);
  await correct(page, chosen.map(([, label]) => label));
  const { seconds, decision } = await learn(page);
  console.log(`learning from ${chosen.length} photos: ${seconds.toFixed(1)} s; ${met(seconds, 30, " s")}; ${load()}; ${decision}`);
  const after = await shownAnswers(page);
  console.log(`${after.filter((text, i) => text.startsWith(`${chosen[i][1]}, `)).length} of ${chosen.length} right afterwards (the model in use was trained on these if it is new)`);
}
