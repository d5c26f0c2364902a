// Every bundle of $BUNDLES computes what its conformance set holds; so does the kept one, of which other runtimes take the
// same 20 training steps (tools/kept_steps.py).
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import test from "node:test";
import * as ort from "onnxruntime-web";
import { conformance } from "../dist/conformance.js";
import { Bundle, configure } from "../dist/device-tuner.js";

const BUNDLES = process.env.BUNDLES ?? "../build/web-bundles/bundles";
const KEPT = "../tests/fixtures/digits";
configure(ort);
export const source = (folder) => async (name) => new Uint8Array(await readFile(`${folder}/${name}`).catch(() => undefined));

for (const place of [KEPT, ...readdirSync(BUNDLES).map((name) => `${BUNDLES}/${name}`)]) {
  test(`${place.split("/").at(-1)} computes what Python does`, async () => {
    const folder = `${place}/bundle`;
    const set = place === KEPT ? `${KEPT}/conformance` : `${folder}/conformance`;
    const bundle = await Bundle.open(source(folder));
    const checks = await conformance(bundle, ort, source(set));
    for (const { name, difference, tolerance, values } of checks) {
      console.log(`  ${name}: differs by ${difference.toPrecision(2)} at most, allowed ${tolerance}, ${values} values`);
    }
    assert.deepEqual(checks.filter(({ difference, tolerance }) => !(difference <= tolerance)), []);
    assert.ok(checks.length >= 5);
  });
}
