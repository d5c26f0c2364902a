// Figures of a bundle in the browser next to native ones: node e2e/figures.mjs BUNDLE PHOTOS SCREENSHOTS
// PHOTOS holds class folders of photos; the classes are among the bundle's labels.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { ask, correct, filesOf, learn, open, PYTHON, ready, serve } from "./browser.mjs";

const [bundle, photos, screens] = process.argv.slice(2);
const NATIVE = `
import sys, time, numpy as np
from pathlib import Path
from tuner.bundle.format import Bundle
from tuner.bundle.tensors import read_tensors
from tuner.ort.training_step import StepSession
from tuner.runtime import Personaliser
bundle = Bundle.open(Path(sys.argv[1]))
model = Personaliser(bundle, threads=1)
sample = (np.arange(np.prod(bundle.input_shape)) % 251).astype(np.uint8).reshape(bundle.input_shape)
def least(work, times):
    seconds = []
    for _ in range(times):
        began = time.perf_counter(); work(); seconds.append(time.perf_counter() - began)
    return min(seconds)
predict, step = least(lambda: model.predict(sample), 20), float("nan")
if "train/step.onnx" in bundle.info.files:
    session = StepSession(bundle.file("train/step.onnx"), read_tensors(bundle.file("weights.safetensors")), 1)
    port = session.layout.only("input")
    features, labels = np.full(port.shape, 0.5, np.float32), np.zeros(port.shape[0], np.int64)
    step = least(lambda: session.step(features, labels, 1e-5), 20)
print(predict, step)
`;
const native = () => spawnSync(PYTHON, ["-c", NATIVE, bundle], { encoding: "utf8" }).stdout.trim().split(" ").map(Number);
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;

const server = await serve(bundle);
const { browser, context } = await open({ viewport: { width: 1280, height: 900 } });
try {
  const page = await context.newPage();
  await page.goto(server.address);
  console.log(`interactive after ${await ready(page)} ms`);
  const least = (values) => Math.min(...values);
  for (const threads of process.env.TIMES === "0" ? [] : [1, 2]) {
    await page.goto(`${server.address}?threads=${threads}`);
    await ready(page);
    await page.evaluate(() => tuner.call("measure", 50)); // until its code is compiled well
    const [ours, theirs] = [[], []];
    for (let i = 0; i < 5; i++) {
      theirs.push(native());
      ours.push(await page.evaluate(() => tuner.call("measure", 20)));
    }
    for (const [at, name] of ["predict", "step"].entries()) {
      const [own, other] = [least(ours.map((one) => one[name])), least(theirs.map((one) => one[at]))];
      console.log(`${ours[0].threads} threads: ${name} ${milliseconds(own)}, native with one thread ${milliseconds(other)}: ${(own / other).toFixed(2)}, the least of 100 each, 5 times 20 in turns`);
    }
  }
  const classes = readdirSync(photos).sort();
  const chosen = classes.flatMap((name) => filesOf(`${photos}/${name}`).slice(0, Math.ceil(20 / classes.length)).map((file) => [file, name])).slice(0, 20);
  const shoot = async (name) => {
    for (const width of [1280, 360]) {
      await page.setViewportSize({ width, height: 900 });
      await page.screenshot({ path: `${screens}/web-${name}-${width}.png`, fullPage: width === 1280 && name !== "1-answer" });
    }
  };
  const answers = await ask(page, chosen.map(([file]) => file));
  console.log(`${answers.filter(([label], i) => label === chosen[i][1]).length} of ${chosen.length} right as exported`);
  await shoot("1-answer");
  await correct(page, chosen.map(([, label]) => label));
  await shoot("2-corrected");
  const { seconds, decision } = await learn(page);
  console.log(`learning from ${chosen.length} photos: ${seconds.toFixed(1)} s; ${decision}`);
  await page.evaluate(() => document.getElementById("learning").scrollIntoView());
  await shoot("3-learned");
  const after = await ask(page, chosen.map(([file]) => file));
  console.log(`${after.filter(([label], i) => label === chosen[i][1]).length} of ${chosen.length} right afterwards (these were trained on)`);
  await shoot("4-after");
  if (await page.locator("#back").isEnabled()) {
    await page.locator("#back").click();
    await page.getByText("The model is in use as it was exported.").waitFor();
  }
  await page.evaluate(() => document.getElementById("model").scrollIntoView());
  await shoot("5-back");
} finally {
  await browser.close();
  await server.end();
}
