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
// the bound is for what is loaded at once; what learning loads when it begins is shown next to it
const LEARN = { "with a tail": "stepping", "with a head in closed form": "solving", "with exits": "exiting" };
const of = (module) => Object.keys(outputs).find((file) => outputs[file].entryPoint === `src/${module}.ts`);
const text = (files) => `${([...files].reduce((sum, file) => sum + outputs[file].bytes, 0) / 1000).toFixed(1)} kB`;
for (const name of ["device-tuner", "worker"]) {
  const at = loaded(`dist/${name}.js`);
  console.log(`${name}: ${text(at)} minified, at most ${MOST_BYTES / 1000} kB`);
  for (const [way, module] of Object.entries(LEARN)) {
    const all = ["trainers", "round", module].reduce((files, own) => loaded(of(own), files), new Set(at));
    console.log(`  once it learns ${way}: ${text(all)}`);
  }
  const size = [...at].reduce((sum, file) => sum + outputs[file].bytes, 0);
  if (size > MOST_BYTES) throw new Error(`${name} has ${size} bytes, at most ${MOST_BYTES} are allowed`);
}
console.log(`all modules together: ${text(Object.keys(outputs))}`);

/** Return a file, and those that are loaded with it. */
function loaded(file, files = new Set()) {
  if (files.has(file)) return files;
  files.add(file);
  for (const { path, kind } of outputs[file].imports) if (kind === "import-statement" && path in outputs) loaded(path, files);
  return files;
}

async function page() {
  rmSync(PAGE, { recursive: true, force: true });
  await build({ ...shared, entryPoints: { app: "page/app.ts", worker: "src/worker.ts", worklet: "page/worklet.ts" }, outdir: PAGE });
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

// what this was built from: a test in Python compares it, so that nobody forgets to build
const sources = ["build.mjs", "package-lock.json", ...["page", "src"].flatMap((folder) => readdirSync(folder).sort().map((name) => `${folder}/${name}`))];
const built = createHash("sha256");
for (const name of sources) built.update(`${name}\n`).update(readFileSync(name));
writeFileSync("built.sha256", `${built.digest("hex")}\n`);
