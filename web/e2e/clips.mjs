// What a person sees of a bundle of sounds, as pictures at 360 and 1280 pixels: node e2e/clips.mjs BUNDLE SOUNDS NEW MICROPHONE OUT
// SOUNDS has a folder of clips for each label, one of which, NEW, the bundle does not have; MICROPHONE is a WAV file to hear.
import { resolve } from "node:path";
import { answers, ask, correct, filesOf, learn, pictures } from "./browser.mjs";

const [bundle, sounds, added, microphone, out] = process.argv.slice(2);
const options = { permissions: ["microphone"], colorScheme: process.env.SCHEME ?? "light" };
await pictures(bundle, out, { 360: 740, 1280: 800 }, sequence, { options, sound: resolve(microphone) });

/** Take the pictures of one size. */
async function sequence(page, shoot, width) {
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
}
