// What a person sees, as pictures at 360 and 1280 pixels: node e2e/pictures.mjs BUNDLE PHOTOS NEW OUT
// BUNDLE learns in closed form; PHOTOS has a folder of photos for each label, one of which, NEW, the bundle does not have.
// Sixty photos of three labels, mixed, are labelled by presses that are counted, learned, refused and undone.
import { filesOf, learn, pick, pictures, sweep } from "./browser.mjs";

const [bundle, photos, added, out] = process.argv.slice(2);
const [SHARE, WRONG] = [20, 12];
await pictures(bundle, out, { 360: 640, 1280: 800 }, sequence, { script: count });

/** Count presses. */
function count() {
  window.presses = 0;
  addEventListener("pointerdown", () => window.presses++, true);
}

/** Take the pictures of one size. */
async function sequence(page, shoot, width) {
  const known = (await page.evaluate(() => tuner.call("status"))).labels.filter((label) => label !== added).slice(0, 2);
  const labels = [...known, added];
  const given = labels.flatMap((label) => filesOf(`${photos}/${label}`).slice(0, SHARE).map((file) => [file, label]));
  await pick(page, given.map(([file]) => file));
  await shoot("1-sixty-photos");
  const tiles = await page.locator("#photos li[data-photo]").evaluateAll((all) => all.map((one) => [Number(one.dataset.photo), one.querySelector(".answer").textContent.split(",")[0]]));
  const wrong = tiles.filter(([number, label]) => label !== given[number][1]).map(([number]) => number);
  for (const label of labels) {
    const own = wrong.filter((number) => given[number][1] === label);
    if (!own.length) continue;
    await sweep(page, own);
    const button = page.locator("#labels").getByRole("button", { name: label, exact: true });
    if (label === added) {
      await page.locator("#label").click();
      await page.locator("#label").fill(label);
      await shoot("2-a-new-label");
      await page.locator("#label").press("Enter");
    } else {
      await shoot("2-many-at-once");
      await button.click();
    }
    await page.getByText(new RegExp(`kept as ${label}(, a new label)?\\.$`)).waitFor();
  }
  await page.locator("#right").click();
  await page.getByText(/kept as answered\.$/).waitFor();
  console.log(`${width} px: ${given.length} photos, ${wrong.length} answered wrong, are labelled by ${await page.evaluate(() => window.presses)} presses`);
  await shoot("3-labelled");
  console.log((await learn(page)).decision);
  await page.locator("#view-kept").click();
  await shoot("4-learned");
  await pick(page, filesOf(`${photos}/${known[0]}`).slice(SHARE, SHARE + WRONG));
  await page.locator("#all").click();
  await page.locator("#labels").getByRole("button", { name: known[1], exact: true }).click();
  await page.getByText(`${WRONG} photos are kept as ${known[1]}.`).waitFor();
  console.log((await learn(page)).decision);
  await shoot("5-refused");
  await page.locator("#undo").click();
  await page.getByText(/^Undone: /).waitFor();
  await page.locator("#undo").click();
  await page.getByText("Undone: learning.").waitFor();
  await shoot("6-undone");
}
