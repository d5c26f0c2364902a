// The page on a bundle that answers numbers: answers, corrections, learning, and Python's word.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { answers, barriers, choose, conforms, filesOf, learn, menu, open, ready, serve, tuner } from "./browser.mjs";

const SIZES = `${process.env.BUNDLES ?? "../build/web-bundles/bundles"}/sizes`;
const photos = filesOf(`${SIZES}/new`);
const truths = photos.map((file) => /-([\d.]+)\+([\d.]+)\.png/.exec(file).slice(1));
const server = await serve(`${SIZES}/bundle`);
const { browser, context, seen } = await open({ viewport: { width: 360, height: 740 } });
const folder = await mkdtemp(`${tmpdir()}/device-tuner-`);
const predicted = async (from) => JSON.parse(await tuner("predict", from, ...photos, "--json")).predictions;

/** Ask about the pictures; return the numbers that each is answered with. */
async function ask(page) {
  const texts = await answers(page, photos);
  return texts.map((text) => text.split("; ").map((one) => Number(one.split(" ").at(-1))));
}

const alike = (answers, predictions) => predictions.forEach(({ values, file }, i) => {
  Object.values(values).forEach((value, output) => assert.ok(Math.abs(answers[i][output] - value) <= 1e-3 * Math.abs(value), `${file}: ${answers[i]}, Python ${value}`));
});
const error = (answers) => answers.reduce((sum, [size], i) => sum + Math.abs(size - truths[i][0]), 0) / answers.length;

try {
  const page = await context.newPage();
  await page.goto(server.address);
  await ready(page);
  await conforms(page);
  const exported = await ask(page);
  alike(exported, await predicted(`${SIZES}/bundle`));
  assert.deepEqual(await barriers(page), []);
  for (const [i, own] of truths.entries()) {
    await choose(page, truths.map((_, at) => at === i));
    for (const [output, box] of (await page.locator("#labels input").all()).entries()) await box.fill(own[output]);
    await page.locator("#keep").click();
    await page.getByText(`kept as output 0 ${own[0]}; output 1 ${own[1]}.`).waitFor();
  }
  const { seconds, decision } = await learn(page);
  console.log(`numbers: learning from ${photos.length} photos: ${seconds.toFixed(1)} s; ${decision}`);
  assert.match(decision, /is in use/);
  await menu(page);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#save").click()]);
  await download.saveAs(`${folder}/taught.zip`);
  const taught = await ask(page);
  alike(taught, await predicted(`${folder}/taught.zip`));
  assert.ok(error(taught) < error(exported), `the sizes are off by ${error(exported)} before, ${error(taught)} after`);
  assert.deepEqual(seen.errors, []);
} finally {
  await rm(folder, { recursive: true });
  await browser.close();
  await server.end();
}
