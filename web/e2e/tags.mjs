// The page on bundles whose pictures may have several labels: answers, corrections, learning, and Python's word.
// One trains by steps, the other has a head in closed form.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { answers, barriers, choose, conforms, filesOf, learn, menu, open, ready, serve, tuner } from "./browser.mjs";

const BUNDLES = process.env.BUNDLES ?? "../build/web-bundles/bundles";

/** Ask about the pictures; return the labels that each is answered with. */
async function ask(page, photos) {
  const texts = await answers(page, photos);
  return texts.map((text) => (text.startsWith("nothing") ? [] : text.split("; ").map((one) => one.split(",")[0])));
}

const alike = (answers, predictions) => predictions.forEach(({ labels: all, file }, i) => assert.deepEqual(answers[i].sort(), Object.keys(all).sort(), file));

async function taught(name) {
  const TAGS = `${BUNDLES}/${name}`;
  const photos = filesOf(`${TAGS}/new`);
  const labels = photos.map((file) => /-([\w+]+)\./.exec(file)[1].split("+"));
  const server = await serve(`${TAGS}/bundle`);
  const { browser, context, seen } = await open({ viewport: { width: 360, height: 740 } });
  const folder = await mkdtemp(`${tmpdir()}/device-tuner-`);
  const predicted = async (from) => JSON.parse(await tuner("predict", from, ...photos, "--json")).predictions;
  try {
    const page = await context.newPage();
    await page.goto(server.address);
    await ready(page);
    await conforms(page);
    alike(await ask(page, photos), await predicted(`${TAGS}/bundle`));
    assert.deepEqual(await barriers(page), []);
    for (const all of new Set(labels.map((own) => own.join("+")))) {
      await choose(page, labels.map((own) => own.join("+") === all));
      for (const box of await page.locator("#labels input").all()) await box.setChecked(all.split("+").includes(await box.inputValue()));
      await page.locator("#keep").click();
      await page.getByText(`kept as ${all.split("+").join(" and ")}.`).waitFor();
    }
    const { seconds, decision } = await learn(page);
    console.log(`${name}: learning from ${photos.length} photos: ${seconds.toFixed(1)} s; ${decision}`);
    assert.match(decision, /is in use/);
    await menu(page);
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator("#save").click()]);
    await download.saveAs(`${folder}/taught.zip`);
    alike(await ask(page, photos), await predicted(`${folder}/taught.zip`));
    assert.deepEqual(seen.errors, []);
  } finally {
    await rm(folder, { recursive: true });
    await browser.close();
    await server.end();
  }
}

for (const name of ["tags", "solved-tags"]) await taught(name);
