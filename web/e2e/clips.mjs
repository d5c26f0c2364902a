// What a person sees of a bundle of sounds, as pictures at 360 and 1280 pixels: node e2e/clips.mjs BUNDLE SOUNDS NEW MICROPHONE OUT
// SOUNDS has a folder of clips for each label, one of which, NEW, the bundle does not have; MICROPHONE is a WAV file to hear.
import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { answers, ask, correct, filesOf, learn, open, ready, serve } from "./browser.mjs";

const [bundle, sounds, added, microphone, out] = process.argv.slice(2);
const SIZES = { 360: 740, 1280: 800 };
await mkdir(out, { recursive: true });
const server = await serve(bundle);
try {
  for (const [width, height] of Object.entries(SIZES)) await sequence(Number(width), height);
} finally {
  await server.end();
}

/** Take the pictures of one size. */
async function sequence(width, height) {
  const { browser, context } = await open({ viewport: { width, height }, permissions: ["microphone"], colorScheme: process.env.SCHEME ?? "light" }, resolve(microphone));
  try {
    const page = await context.newPage();
    await page.goto(server.address);
    await ready(page);
    const shoot = async (name) => {
      await page.screenshot({ path: `${out}/${name}-${width}.png` });
      const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight);
      if (!fits) throw new Error(`${name} is larger than the screen of ${width} pixels`);
    };
    await shoot("sounds-1-empty");
    await page.locator("#camera").click();
    await page.waitForFunction(() => Number(document.querySelector(".axis")?.textContent.match(/\d+/)?.[0]) > 0 || document.querySelectorAll("#timeline .lane").length > 2, null, { timeout: 60_000 });
    await page.locator("#shoot").click();
    await page.getByText("1 clip was answered.").waitFor();
    await shoot("sounds-2-listening");
    await page.locator("#stop").click();
    await answers(page, [microphone]);
    await shoot("sounds-3-timeline");
    const clips = filesOf(`${sounds}/${added}`).slice(0, 10);
    await ask(page, clips);
    await correct(page, clips.map(() => added));
    console.log(`${width} px: ${(await learn(page)).decision}`);
    await answers(page, filesOf(`${sounds}/${added}`).slice(10, 18));
    await shoot("sounds-4-learned");
    await answers(page, [microphone]);
    await shoot("sounds-5-timeline-learned");
  } finally {
    await browser.close();
  }
}
