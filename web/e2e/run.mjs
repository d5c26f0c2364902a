// The page in a browser, on the bundle of pictures that tools/web_bundles.py makes: what a person does, and Python's word.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { ask, barriers, choose, conforms, correct, filesOf, learn, menu, open, ready, serve, serveFiles, shownAnswers, tuner } from "./browser.mjs";

const PHOTOS = `${process.env.BUNDLES ?? "../build/web-bundles/bundles"}/photos`;
const bundle = `${PHOTOS}/bundle`;
const photos = filesOf(`${PHOTOS}/new`);
const labels = photos.map((file) => /-(\w+)\./.exec(file)[1]);
const server = await serve(bundle);
const { browser, context, seen } = await open({ viewport: { width: 360, height: 740 } });
const figure = (name, text) => console.log(`${name}: ${text}`);
const folder = await mkdtemp(`${tmpdir()}/device-tuner-`);
const predicted = async (from) => JSON.parse(await tuner("predict", from, ...photos, "--json")).predictions;

function alike(answers, predictions) {
  predictions.forEach(({ label, probability, file }, i) => {
    assert.equal(answers[i][0], label, file);
    assert.ok(Math.abs(Number(answers[i][1]) - 100 * probability) <= 1.5, `${file}: ${answers[i][1]} %, Python ${probability}`);
  });
}

try {
  const page = await context.newPage();
  await page.goto(server.address);
  figure("the page can be used after", `${await ready(page)} ms`);
  assert.equal(await page.evaluate(() => crossOriginIsolated), true, "threads need an isolated page");

  // the same as Python: decoding, resizing, every number
  await conforms(page, console.log);
  const exported = await predicted(bundle);
  alike(await ask(page, photos), exported);

  // what a person sees and hears on a small phone
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight);
  assert.ok(await fits(), "the page is larger than the screen");
  await menu(page);
  const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, select, input, img, canvas, progress, meter, video")]
    .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.getAttribute("alt") || document.querySelector(`label[for="${one.id}"]`)))
    .map((one) => one.outerHTML));
  assert.deepEqual(unnamed, [], "something has no name for a screen reader");
  assert.deepEqual(await barriers(page), []);
  await page.locator("body").press("Tab");
  const reached = new Set();
  for (let i = 0; i < 200; i++) {
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName));
    await page.keyboard.press("Tab");
  }
  for (const id of ["skip", "files", "camera", "save", "bundle", "tile", "all", "right"]) assert.ok(reached.has(id), `the keyboard does not reach ${id}`);

  await page.locator("#menu summary").click();

  // a round without the time to judge by all photos says so, and takes more time where it may
  await choose(page, photos.map((_, i) => i % 5 === 0));
  await page.locator("#labels").getByRole("button", { name: "red", exact: true }).click();
  await page.getByText("5 photos are kept as red.").waitFor();
  await page.locator("#right").click();
  await page.getByText("19 photos are kept as answered.").waitFor();
  await page.evaluate(() => {
    const { watch } = tuner;
    tuner.watch = (name, progress, ...values) => watch.call(tuner, name, progress, ...(name === "learn" && !values.length ? [0] : values));
  });
  const late = await learn(page);
  assert.match(late.decision, /^Not decided, the old model stays: \d+ of 24 photos were judged in the time, \d+ right before, \d+ after\.$/);
  figure("without time", late.decision);
  assert.ok(await fits(), "the page is larger than the screen with a verdict");
  await page.screenshot({ path: `${process.env.PICTURES ?? folder}/late-360.png` });
  await learn(page, "more");
  assert.doesNotMatch(await page.locator("#decision").textContent(), /Not decided/);
  page.once("dialog", (dialog) => dialog.accept());
  await menu(page);
  await page.locator("#forget").click();
  await page.getByText("All photos and rounds are removed.").waitFor();
  await page.reload();
  await ready(page);
  await ask(page, photos);

  // learn what yellow is to this person
  assert.ok(await page.locator("#learn").isDisabled(), "there is nothing to learn from yet");
  await correct(page, labels);
  const { seconds, decision } = await learn(page);
  figure(`learning from ${photos.length} photos`, `${seconds.toFixed(1)} s; ${decision}`);
  assert.match(decision, /is in use/);
  const shown = (await shownAnswers(page)).slice(-photos.length);
  assert.deepEqual(await barriers(page), []);
  const taught = await ask(page, photos);
  assert.deepEqual(shown, taught.map(([label, share]) => `${label}, ${share}\u00a0%`), "the photos on the page have old answers");
  const right = (answers) => answers.filter(([label], i) => label === labels[i]).length;
  assert.ok(right(taught) > exported.filter(({ label }, i) => label === labels[i]).length + 5, "it learned nothing");

  // what Python says of it
  await menu(page);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#save").click()]);
  const zip = `${folder}/taught.zip`;
  await download.saveAs(zip);
  alike(taught, await predicted(zip));
  const card = JSON.parse(await tuner("show", zip, "--json"));
  assert.equal(card.trainable, true);
  assert.equal(card.scores.after.samples, photos.length);

  // a second round is judged by new photos only: there are none
  const again = await learn(page);
  assert.match(again.decision, /refused/);
  assert.ok(await fits(), "the page is larger than the screen after a round");

  // reload, without a network: the round in use is still there
  await page.evaluate(() => navigator.serviceWorker.ready);
  await page.waitForFunction(async () => (await caches.keys()).length >= 2);
  await context.setOffline(true);
  await server.end();
  await page.reload();
  figure("without a network, it can be used after", `${await ready(page)} ms`);
  assert.match(await page.locator("#round").textContent(), /Round 0001/);
  assert.deepEqual(await ask(page, photos), taught);

  // go back
  await menu(page);
  await page.locator("#back").click();
  await page.getByText("The model is in use as it was exported.").waitFor();
  alike(await ask(page, photos), exported);

  // the zip of the taught bundle, opened in the page
  await page.setInputFiles("#bundle", zip);
  await page.waitForFunction(() => document.querySelectorAll("#photos li[data-photo]").length === 0);
  await ready(page);
  assert.deepEqual(await ask(page, photos), taught);

  assert.deepEqual([...seen.origins], [new URL(server.address).origin], "a request went elsewhere");

  // any file server: one thread at first; then the service worker adds the headers that threads need
  await context.setOffline(false);
  const files = await serveFiles(bundle);
  const plain = await context.newPage();
  await plain.goto(files.address);
  await ready(plain);
  assert.equal(await plain.evaluate(() => crossOriginIsolated), false);
  alike(await ask(plain, photos), exported);
  await plain.evaluate(() => navigator.serviceWorker.ready);
  await plain.waitForFunction(() => navigator.serviceWorker.controller);
  await plain.reload();
  await ready(plain);
  assert.equal(await plain.evaluate(() => crossOriginIsolated), true);
  alike(await ask(plain, photos), exported);
  await plain.close();
  files.end();
  await context.setOffline(true);
  const blocked = await page.evaluate(async () => {
    const violation = new Promise((resolve) => addEventListener("securitypolicyviolation", (event) => resolve(event.violatedDirective)));
    await fetch("https://example.invalid/").catch(() => {});
    return violation;
  });
  assert.equal(blocked, "connect-src");
  const ours = seen.errors.filter((text) => !/example\.invalid|ERR_INTERNET_DISCONNECTED|Failed to load resource/.test(text));
  assert.deepEqual(ours, []);
  console.log("the page does what it should");
} finally {
  await rm(folder, { recursive: true });
  await browser.close();
  await server.end().catch(() => {});
}
