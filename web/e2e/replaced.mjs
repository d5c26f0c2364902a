// Two bundles below one server, one of which is replaced by another: without a network, each page answers as its own bundle.
import assert from "node:assert/strict";
import { mkdtemp, rename, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { answers, filesOf, open, ready, serveFiles } from "./browser.mjs";

const BUNDLES = resolve(process.env.BUNDLES ?? "../build/web-bundles/bundles");
const folder = await mkdtemp(`${tmpdir()}/device-tuner-`);
const place = async (name, as) => {
  await symlink(`${BUNDLES}/${name}/bundle`, `${folder}/next`);
  await rename(`${folder}/next`, `${folder}/${as}`);
};
await place("photos", "one");
await place("sizes", "two");
const server = await serveFiles(folder);
const { browser, context, seen } = await open();
const photo = filesOf(`${BUNDLES}/photos/new`).slice(0, 1);

/** Open a bundle's page, and return its name and what it answers. */
async function visit(page, as) {
  await page.goto(server.address.replace("/web/", `/${as}/web/`));
  await ready(page);
  const [answer] = await answers(page, photo);
  return [await page.locator("#name").textContent(), answer];
}

/** Wait until the service worker of a page answers. */
const controlled = (page) => page.waitForFunction(() => navigator.serviceWorker.controller);

try {
  const page = await context.newPage();
  const first = await visit(page, "one");
  await controlled(page);
  const two = await visit(page, "two");
  await controlled(page);
  await place("tags", "one");
  const replaced = await visit(page, "one");
  assert.notDeepEqual(replaced, first, "the page still answers as the bundle that was replaced");
  await context.setOffline(true);
  server.end();
  assert.deepEqual(await visit(page, "one"), replaced);
  assert.deepEqual(await visit(page, "two"), two);
  assert.equal((await page.evaluate(() => caches.keys())).length, 4, "caches of what was replaced are left");
  assert.deepEqual(seen.errors.filter((text) => !/ERR_|Failed to load resource/.test(text)), []);
  console.log("a bundle that was replaced, and another one of the same server, work without a network");
} finally {
  await rm(folder, { recursive: true });
  await browser.close();
  server.end();
}
