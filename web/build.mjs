// Builds the library and the page. The page's files go into the Python package, so that it needs no node:
// tuner/commands/web. What is built is committed, and `make test-web` checks that it is up to date.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const MOST_BYTES = 40_000;
const PAGE = "../tuner/commands/web";
const DIST = "node_modules/onnxruntime-web/dist";
const ORT = ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"];
const STATIC = ["index.html", "style.css", "manifest.webmanifest", "icon.svg"];
const shared = {
  bundle: true, splitting: true, format: "esm", target: "es2022", minify: true, charset: "utf8",
  legalComments: "none", logLevel: "warning", chunkNames: "[name]-[hash]", metafile: true,
};

rmSync("dist", { recursive: true, force: true });
const entries = { "device-tuner": "src/index.ts", worker: "src/worker.ts", conformance: "src/conformance.ts" };
const { metafile: { outputs } } = await build({ ...shared, entryPoints: entries, outdir: "dist" });
for (const name of ["device-tuner", "worker"]) {
  const [at, later] = [new Set(), new Set()];
  collect(`dist/${name}.js`, at, later);
  const size = (files) => [...files].reduce((sum, file) => sum + outputs[file].bytes, 0);
  console.log(`${name}: ${(size(at) / 1000).toFixed(1)} kB minified, at most ${MOST_BYTES / 1000} kB`);
  for (const file of later) if (!at.has(file)) console.log(`  ${file}: ${(outputs[file].bytes / 1000).toFixed(1)} kB when it is needed`);
  if (size(at) > MOST_BYTES) throw new Error(`${name} has ${size(at)} bytes, at most ${MOST_BYTES} are allowed`);
}

function collect(file, at, later) {
  if (at.has(file)) return;
  at.add(file);
  for (const { path, kind } of outputs[file].imports) {
    if (!(path in outputs)) continue;
    if (kind === "import-statement") collect(path, at, later);
    else later.add(path);
  }
}

async function page() {
  rmSync(PAGE, { recursive: true, force: true });
  await build({ ...shared, entryPoints: { app: "page/app.ts", worker: "src/worker.ts" }, outdir: PAGE });
  for (const name of STATIC) copyFileSync(`page/${name}`, `${PAGE}/${name}`);
  const { version } = JSON.parse(readFileSync("node_modules/onnxruntime-web/package.json", "utf8"));
  const files = readdirSync(PAGE).sort();
  const hash = (content) => createHash("sha256").update(content).digest("hex");
  const needed = Object.fromEntries(ORT.map((name) => [name, hash(readFileSync(`${DIST}/${name}`))]));
  writeFileSync(`${PAGE}/onnxruntime-web.json`, `${JSON.stringify({ version, files: needed }, null, 1)}\n`);
  const digest = createHash("sha256");
  for (const name of files) digest.update(readFileSync(`${PAGE}/${name}`));
  const define = { FILES: JSON.stringify(["./", ...files]), VERSION: JSON.stringify(`${version}-${digest.digest("hex").slice(0, 12)}`) };
  await build({ ...shared, splitting: false, define, entryPoints: { sw: "page/sw.ts" }, outdir: PAGE });
  // ONNX Runtime's own files are large: they are in the wheel if this has run before it is built, and never in git
  mkdirSync(`${PAGE}/ort`);
  for (const name of ORT) copyFileSync(`${DIST}/${name}`, `${PAGE}/ort/${name}`);
}

await page();
