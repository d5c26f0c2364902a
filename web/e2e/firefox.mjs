// The page in Firefox, where there is one: the same answers as Python's, and learning.
import assert from "node:assert/strict";
import { ask, conforms, correct, filesOf, learn, openFirefox, ready, serve, tuner } from "./browser.mjs";

const browser = await openFirefox();
if (!browser) {
  console.log("Firefox was not tried: there is none; $FIREFOX names one, docs/shipping.md says how to get it");
  process.exit();
}
const PHOTOS = `${process.env.BUNDLES ?? "../build/web-bundles/bundles"}/photos`;
const photos = filesOf(`${PHOTOS}/new`);
const server = await serve(`${PHOTOS}/bundle`);
try {

  const page = await browser.newPage();
  await page.goto(server.address);
  console.log(`Firefox ${browser.version()}: the page can be used after ${await ready(page)} ms`);
  assert.equal(await page.evaluate(() => crossOriginIsolated), true);
  await conforms(page, console.log);
  const answers = await ask(page, photos);
  const { predictions } = JSON.parse(await tuner("predict", `${PHOTOS}/bundle`, ...photos, "--json"));
  predictions.forEach(({ label, probability, file }, i) => {
    assert.equal(answers[i][0], label, file);
    assert.ok(Math.abs(Number(answers[i][1]) - 100 * probability) <= 1.5, `${file}: ${answers[i][1]} %, Python ${probability}`);
  });
  await correct(page, photos.map((file) => /-(\w+)\./.exec(file)[1]));
  const { seconds, decision } = await learn(page);
  console.log(`learning from ${photos.length} photos: ${seconds.toFixed(1)} s; ${decision}`);
  assert.match(decision, /is in use/);
  await page.reload();
  await ready(page);
  assert.match(await page.locator("#round").textContent(), /Round 0001/);
  console.log("the page does in Firefox what it should");
} finally {
  await browser.close();
  await server.end();
}
