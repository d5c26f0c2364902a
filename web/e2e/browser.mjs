// What the tests in a browser share: a server, a page, and what a person does with it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import axe from "axe-core";
import { chromium, firefox } from "playwright-core";

export const PYTHON = process.env.PYTHON ?? "../.venv/bin/python";
export const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Serve a bundle's page; return its address, and how to end it. */
export async function serve(folder) {
  const server = spawn(PYTHON, ["-m", "tuner", "serve", folder, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface(server.stdout), "line");
  const end = async () => {
    if (server.exitCode === null) (server.kill("SIGINT"), await once(server, "exit"));
  };
  return { address: line.split(" ")[0], end };
}

/** Serve a folder as any file server does, without headers; return its address, and how to end it. */
export async function serveFiles(folder) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const content = await readFile(`${folder}${pathname.endsWith("/") ? `${pathname}index.html` : pathname}`).catch(() => undefined);
    const type = { js: "text/javascript", mjs: "text/javascript", html: "text/html", css: "text/css", wasm: "application/wasm" }[pathname.split(".").pop()];
    response.writeHead(content ? 200 : 404, { "Content-Type": pathname.endsWith("/") ? "text/html" : (type ?? "application/octet-stream") });
    response.end(content);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { address: `http://localhost:${server.address().port}/web/`, end: () => (server.close(), server.closeAllConnections()) };
}

/** Run a program of tuner; return what it prints. */
export async function tuner(...words) {
  const run = spawn(PYTHON, ["-m", "tuner", ...words], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  run.stdout.on("data", (part) => (text += part));
  const [code] = await once(run, "exit");
  if (code) throw new Error(`tuner ${words.join(" ")} ended with ${code}`);
  return text;
}

/** Open Firefox, if there is one: $FIREFOX, the system's, or one that was unpacked below build/firefox. */
export async function openFirefox() {
  const unpacked = new URL("../../build/firefox/usr/lib/", import.meta.url).pathname;
  const found = [process.env.FIREFOX, "/usr/bin/firefox-esr", "/usr/bin/firefox", `${unpacked}firefox-esr/firefox-esr`].find((path) => path && existsSync(path));
  if (!found) return undefined;
  const libraries = found.startsWith(unpacked) ? { LD_LIBRARY_PATH: `${unpacked}firefox-esr:${unpacked}x86_64-linux-gnu` } : {};
  return firefox.launch({ channel: "moz-firefox", executablePath: found, env: { ...process.env, ...libraries } });
}

/** Return what axe-core finds wrong with a page for people who use a screen reader, a keyboard, or need contrast. */
export async function barriers(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0].html}`);
}

/** Open a browser whose pages note every request and every error; its microphone hears a file, if one is given. */
export async function open(options = {}, sound = undefined) {
  const device = sound ? ["--use-fake-device-for-media-stream", `--use-file-for-fake-audio-capture=${sound}`] : [];
  const browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-dev-shm-usage", ...device] });
  const context = await browser.newContext({ acceptDownloads: true, ...options });
  const seen = { origins: new Set(), errors: [] };
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http")) seen.origins.add(url.origin);
  });
  context.on("weberror", (error) => seen.errors.push(String(error.error())));
  context.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  return { browser, context, seen };
}

/** Take pictures of a bundle's page, by the heights of the screens for their widths; a page may not be larger than its screen. */
export async function pictures(bundle, out, sizes, sequence, { options = {}, sound, script = () => {} } = {}) {
  await mkdir(out, { recursive: true });
  const server = await serve(bundle);
  try {
    for (const [width, height] of Object.entries(sizes)) {
      const { browser, context } = await open({ viewport: { width: Number(width), height }, ...options }, sound);
      try {
        await context.addInitScript(script);
        const page = await context.newPage();
        await page.goto(server.address);
        await ready(page);
        const shoot = async (name) => {
          await page.screenshot({ path: `${out}/${name}-${width}.png` });
          const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight);
          if (!fits) throw new Error(`${name} is larger than the screen of ${width} pixels`);
        };
        await sequence(page, shoot, width);
      } finally {
        await browser.close();
      }
    }
  } finally {
    await server.end();
  }
}

/** Wait until a page can be used; return the milliseconds from its begin. */
export async function ready(page, timeout = 60_000) {
  await page.waitForFunction(() => document.body.dataset.ready || !document.getElementById("error").hidden, null, { timeout });
  const error = await page.locator("#error").textContent();
  if (error) throw new Error(error);
  return Number(await page.evaluate(() => document.body.dataset.ready));
}

/** Return the files of a folder. */
export const filesOf = (folder) => readdirSync(folder).sort().map((name) => `${folder}/${name}`);

/** Check that the page computes what Python did, by the bundle's conformance set. */
export async function conforms(page, say = () => {}) {
  for (const { name, difference, tolerance } of await page.evaluate(() => tuner.call("check", new URL("../conformance/", location.href).href))) {
    say(`${name}: differs by ${difference.toPrecision(2)} at most, allowed ${tolerance}`);
    assert.ok(difference <= tolerance, name);
  }
}

/** Return the answers on the page in the order in which the photos came, from a number on. */
export async function shownAnswers(page, from = 0) {
  const shown = await page.locator("#photos li[data-photo]").evaluateAll((all) => all.map((one) => [Number(one.dataset.photo), one.querySelector(".answer").textContent]));
  return shown.filter(([number]) => number >= from).sort(([one], [two]) => one - two).map(([, text]) => text);
}

/** Ask about photos; return the text of each answer, in the order of the photos. */
export async function answers(page, files) {
  const last = await page.locator("#photos li[data-photo]").evaluateAll((all) => Math.max(-1, ...all.map((one) => Number(one.dataset.photo))));
  await page.setInputFiles("#files", files);
  await page.getByText(/^\d+ (photo|clip)s? (was|were) answered\.$/).waitFor({ timeout: 120_000 });
  return shownAnswers(page, last + 1);
}

/** The same where an answer is one label and its probability in percent. */
export const ask = async (page, files) => (await answers(page, files)).map((text) => /^(.*), (\d+)\s%$/.exec(text).slice(1));

/** Choose some of the last photos, given in the order in which they came. */
export async function choose(page, chosen) {
  const numbers = await page.locator("#photos li[data-photo]").evaluateAll((all) => all.map((one) => Number(one.dataset.photo)).sort((one, two) => one - two));
  const last = numbers.slice(-chosen.length);
  for (const [i, number] of last.entries()) if (chosen[i]) await page.locator(`#photos li[data-photo="${number}"] button`).click();
}

/** Press the button for photos, and choose files. */
export async function pick(page, files) {
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.locator("label[for=files]").click()]);
  await chooser.setFiles(files);
  await page.getByText(/^\d+ photos were answered\.$/).waitFor({ timeout: 120_000 });
}

/** Choose photos to label, by their numbers: a press for each run of neighbours, from its first to its last. */
export async function sweep(page, numbers) {
  const shown = await page.locator("#photos li[data-photo]:not(.kept)").evaluateAll((all) => all.map((one) => Number(one.dataset.photo)));
  const runs = [];
  shown.forEach((number, at) => numbers.includes(number) && (numbers.includes(shown[at - 1]) ? runs.at(-1).push(number) : runs.push([number])));
  const place = (number) => page.evaluate((one) => {
    const { top, bottom } = document.getElementById("photos").getBoundingClientRect();
    const { x, width, y } = document.querySelector(`#photos li[data-photo="${one}"] button`).getBoundingClientRect();
    return [x + width / 2, y + 12 > bottom ? bottom : y + 12 < top ? top : y + 12, y + 12 > bottom || y + 12 < top];
  }, number);
  for (const [first, ...rest] of runs) {
    await page.locator(`#photos li[data-photo="${first}"] button`).scrollIntoViewIfNeeded();
    await page.mouse.move(...(await place(first)).slice(0, 2));
    await page.mouse.down();
    for (const number of rest) {
      let [x, y, hidden] = await place(number);
      for (let move = 0; hidden; [x, y, hidden] = await place(number)) await page.mouse.move(x, y + (move++ % 2)); // it scrolls
      await page.mouse.move(x, y);
    }
    await page.mouse.up();
  }
  await page.waitForFunction((count) => document.querySelectorAll("#photos [aria-pressed=true]").length === count && !document.getElementById("labelling").hidden, numbers.length, { timeout: 10_000 });
}

/** Give the last photos their labels, in the order in which they came: all of one label at once. */
export async function correct(page, labels) {
  for (const label of new Set(labels)) {
    await choose(page, labels.map((one) => one === label));
    await page.locator("#label").fill(label);
    await page.locator("#label").press("Enter");
    await page.getByText(new RegExp(`kept as ${label}(, a new label)?\\.$`)).waitFor();
  }
}

/** Open the menu of the model, if it is not open. */
export async function menu(page) {
  if (!(await page.locator("#save").isVisible())) await page.locator("#menu summary").click();
}

/** Learn, by this button; return the seconds that it took, and the decision. */
export async function learn(page, id = "learn", timeout = 600_000) {
  const began = performance.now();
  await page.evaluate(() => (document.getElementById("status").textContent = "")); // what it says of a round before
  await page.locator(`#${id}`).click();
  await page.waitForFunction(() => /Learned|stays as it was/.test(document.getElementById("status").textContent) || !document.getElementById("error").hidden, null, { timeout });
  const error = await page.locator("#error").textContent();
  if (error) throw new Error(error);
  return { seconds: (performance.now() - began) / 1000, decision: await page.locator("#decision").textContent() };
}
