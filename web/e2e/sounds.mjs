// The page on the bundle of sounds that tools/web_bundles.py makes: files, a microphone that plays a file, a new sound, and Python's word.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { tmpdir } from "node:os";
import { answers, ask, barriers, conforms, correct, filesOf, learn, menu, open, ready, serve, tuner } from "./browser.mjs";

const SOUNDS = `${process.env.BUNDLES ?? "../build/web-bundles/bundles"}/sounds`;
const sirens = filesOf(`${SOUNDS}/new`);
const known = ["global/val/low", "local/val/high", "local/val/chirp"].flatMap((folder) => filesOf(`${SOUNDS}/${folder}`).slice(0, 4));
const server = await serve(`${SOUNDS}/bundle`);
const { browser, context, seen } = await open({ viewport: { width: 360, height: 740 } }, resolve(SOUNDS, "microphone.wav"));
const folder = await mkdtemp(`${tmpdir()}/device-tuner-`);

/** Compare with Python, which resamples the clips of 48 kHz, every third of the new ones, in another way. */
function alike(found, predictions) {
  predictions.forEach(({ label, probability, file }, i) => {
    const resampled = /\d+-siren/.test(file) && Number(/(\d+)-siren/.exec(file)[1]) % 3 === 0;
    assert.equal(found[i][0], label, file);
    assert.ok(Math.abs(Number(found[i][1]) - 100 * probability) <= (resampled ? 4 : 1.5), `${file}: ${found[i][1]} %, Python ${probability}`);
  });
}

try {
  await context.addInitScript(() => {
    window.asked = 0;
    const get = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
    if (get) navigator.mediaDevices.getUserMedia = (what) => (window.asked++, get(what));
  });
  const page = await context.newPage();
  await page.goto(server.address);
  await ready(page);
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight);
  await conforms(page, console.log);
  assert.doesNotMatch(await page.locator("body").innerText(), /photo/i);

  // files: Python's answers, and one that is no sound is named
  const files = [...known, ...sirens];
  const { predictions } = JSON.parse(await tuner("predict", `${SOUNDS}/bundle`, ...files, "--json"));
  alike(await ask(page, files), predictions);
  await page.setInputFiles("#files", [`${SOUNDS}/net.py`, known[0]]);
  await page.getByText("net.py is not a sound that the browser can decode").waitFor();
  await page.getByText("1 clip was answered.").waitFor();

  // the microphone is asked for by a press, and a refusal says what to do
  assert.equal(await page.evaluate(() => asked), 0, "the page asked for the microphone by itself");
  await page.locator("#camera").click();
  await page.getByText("the microphone was refused: allow it").waitFor();
  await context.grantPermissions(["microphone"]);
  await page.locator("#camera").click();
  await page.waitForFunction(() => ["low", "high"].every((label) => [...document.querySelectorAll("#timeline .name")].some((one) => one.textContent === label)), null, { timeout: 60_000, polling: 500 });
  assert.ok(await fits(), "the page is larger than the screen while it listens");
  assert.deepEqual(await barriers(page), []);
  await page.locator("#shoot").click();
  await page.getByText("1 clip was answered.").waitFor();
  await page.locator("#stop").click();
  assert.ok(await page.locator("#heard").isHidden());

  // a recording has a timeline, can be played, and becomes clips
  const before = await page.locator("#photos li[data-photo]").count();
  await answers(page, [`${SOUNDS}/microphone.wav`]);
  assert.match(await page.locator("#sound").textContent(), /^microphone\.wav, 12\.0 s$/);
  const rows = await page.locator("#timeline .name").allTextContents();
  assert.ok(rows.includes("low") && rows.includes("high"), String(rows));
  assert.match(await page.locator("#timeline li", { hasText: "low" }).locator(".lane").getAttribute("aria-label"), /^0 to 4 s/);
  assert.deepEqual(await barriers(page), []);
  assert.ok(await fits());
  await page.locator("#cut").click();
  await page.getByText("6 clips were answered.").waitFor();
  assert.equal(await page.locator("#photos li[data-photo]").count(), before + 6);

  // a new sound from ten clips; two others of it are found, and Python says the same
  await page.reload();
  await ready(page);
  const taught = [...known, ...sirens.slice(0, 10)];
  await ask(page, taught);
  await correct(page, taught.map((file) => /siren/.test(file) ? "siren" : file.split("/").at(-2)));
  const { seconds, decision } = await learn(page);
  console.log(`learning from ${taught.length} clips, ten of them of a new sound: ${seconds.toFixed(1)} s; ${decision}`);
  assert.match(decision, /is in use/);
  assert.deepEqual(await barriers(page), []);
  const found = await ask(page, files);
  assert.deepEqual(found.slice(-2).map(([label]) => label), ["siren", "siren"]);
  await menu(page);
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#save").click()]);
  await download.saveAs(`${folder}/taught.zip`);
  alike(found, JSON.parse(await tuner("predict", `${folder}/taught.zip`, ...files, "--json")).predictions);

  // what is kept is there again, as pictures
  await page.reload();
  await ready(page);
  await page.locator("#view-kept").click();
  assert.equal(await page.locator("#photos .kept canvas").count(), taught.length);
  assert.deepEqual([...seen.origins], [new URL(server.address).origin], "a request went elsewhere");
  assert.deepEqual(seen.errors, []);
} finally {
  await rm(folder, { recursive: true });
  await browser.close();
  await server.end();
}
