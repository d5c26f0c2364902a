// Every bundle of $BUNDLES computes what its conformance set holds.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import test from "node:test";
import * as ort from "onnxruntime-web";
import { conformance } from "../dist/conformance.js";
import { Bundle, configure } from "../dist/device-tuner.js";

const BUNDLES = process.env.BUNDLES ?? "../build/web-bundles/bundles";
configure(ort);
export const source = (folder) => async (name) => new Uint8Array(await readFile(`${folder}/${name}`).catch(() => undefined));

for (const name of readdirSync(BUNDLES)) {
  test(`${name} computes what Python does`, async () => {
    const folder = `${BUNDLES}/${name}/bundle`;
    const bundle = await Bundle.open(source(folder));
    const checks = await conformance(bundle, ort, source(`${folder}/conformance`));
    for (const { name, difference, tolerance, values } of checks) {
      console.log(`  ${name}: differs by ${difference.toPrecision(2)} at most, allowed ${tolerance}, ${values} values`);
    }
    assert.deepEqual(checks.filter(({ difference, tolerance }) => !(difference <= tolerance)), []);
    assert.ok(checks.length >= 5);
  });
}
