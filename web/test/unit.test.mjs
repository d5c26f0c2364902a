// The parts that the conformance sets do not reach: zips, files of tensors, plans, codes of every width, rounds.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import test from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { deflateRawSync } from "node:zlib";
import { build } from "esbuild";
import * as ort from "onnxruntime-web";

const BUNDLES = process.env.BUNDLES ?? "../build/web-bundles/bundles";
const contents = ["bytes", "zip", "tensors", "plan", "codec", "image", "gate", "bundle", "learner", "store", "session", "threads", "round", "random", "own", "mark", "target", "model", "trainer", "trainers", "labels", "resize", "rows", "step", "hearing", "sound"]
  .map((name) => `export * from "./src/${name}.ts";`)
  .join("\n");
const built = await build({ stdin: { contents, resolveDir: ".", loader: "ts" }, bundle: true, format: "esm", write: false, external: ["onnxruntime-common"] });
const own = await import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
own.configure(ort);
const EARLIER = "train/own.safetensors";
/** Of 0, 128 and 1,000 bytes that count from 0. */
const MARKS = [3404097857, 2806482688, 2542419851];
const source = (folder) => async (name) => new Uint8Array(await readFile(`${folder}/${name}`).catch(() => undefined));

test("SHA-256 is that of others, of every length", async () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = new Uint8Array(randomBytes(size));
    const expected = createHash("sha256").update(bytes).digest("hex");
    assert.equal(own.sha256(bytes), expected);
    assert.equal(await own.digest(bytes), expected);
  }
});

test("a zip is read as it was written, and with compression", async () => {
  const files = new Map([["a.txt", own.encode("hello")], ["train/ü.bin", new Uint8Array(randomBytes(3000))]]);
  const stored = new Uint8Array(await own.writeZip(files).arrayBuffer());
  assert.deepEqual(await own.readZip(stored), files);
  const content = own.encode("a".repeat(5000));
  const packed = new Uint8Array(deflateRawSync(content));
  const zip = new Uint8Array(await own.writeZip(new Map([["a", packed]])).arrayBuffer());
  const view = new DataView(zip.buffer);
  const directory = 31 + packed.length;
  view.setUint16(directory + 10, 8, true);
  view.setUint32(directory + 24, content.length, true);
  assert.deepEqual((await own.readZip(zip)).get("a"), content);
  view.setUint32(directory + 24, 100, true);
  await assert.rejects(own.readZip(zip), /other sizes/);
  await assert.rejects(own.readZip(own.encode("not a zip")), /no zip/);
});

test("a file of tensors is read as it was written", () => {
  const tensors = new Map([
    ["odd", { type: "U8", shape: [3], data: Uint8Array.of(1, 2, 3) }],
    ["long", { type: "I64", shape: [1, 2], data: BigInt64Array.of(-1n, 2n) }],
    ["number", { type: "F32", shape: [], data: Float32Array.of(0.5) }],
  ]);
  const file = own.readTensors(own.writeTensors({ tensors, metadata: { about: "x" } }));
  assert.deepEqual(new Map([...file.tensors].sort()), new Map([...tensors].sort()));
  assert.deepEqual(file.metadata, { about: "x" });
});

test("numbers of 16 bits: each is its own code, halves go to the even one, and large ones are clamped", () => {
  for (let bits = 0; bits < 2 ** 16; bits++) if (((bits >> 10) & 31) < 31) assert.equal(own.toHalf(own.half(bits)), bits);
  for (let bits = 0; bits < 0x7bff; bits++) {
    const [one, two] = [own.half(bits), own.half(bits + 1)];
    assert.equal(own.toHalf((one + two) / 2), bits + (bits % 2));
    assert.equal(own.toHalf(-(one + 3 * two) / 4), (bits + 1) | 0x8000);
  }
  assert.deepEqual([...own.toHalves(Float32Array.of(65520, -1e30, Infinity))], [0x7bff, 0xfbff, 0x7bff]);
});

test("codes of every width are Python's", async () => {
  const file = own.readTensors(await source(`${BUNDLES}/..`)("codes.safetensors"));
  const of = (name) => file.tensors.get(name).data;
  for (const [bits, perSample] of [[32, 0], [16, 0], [8, 0], [4, 0], [2, 0], [1, 0], [1, 1]]) {
    const bounds = bits > 8 ? [null, null] : [of("low"), of("high")];
    const codec = new own.Codec(bits, [3, 5, 7], ...bounds, Boolean(perSample));
    const [codes, decoded] = [of(`codes.${bits}.${perSample}`), of(`features.${bits}.${perSample}`)];
    for (let i = 0; i < 4; i++) {
      const record = codec.encode(of("features").slice(i * 105, (i + 1) * 105));
      assert.deepEqual(record, codes.slice(i * codec.recordBytes, (i + 1) * codec.recordBytes), `${bits} bits`);
      const out = new Float32Array(105);
      codec.decode(record, out);
      out.forEach((value, at) => assert.ok(Math.abs(value - decoded[i * 105 + at]) < 1e-6, `${bits} bits, ${value}`));
    }
  }
});

test("a plan is read, and what is no plan is refused", () => {
  const plan = own.readPlan('# a\nsplit = 1\n[data]\nweight = 0.5\nbalance = true\n[recipe]\nepochs = 3\nbatch_size = 8\nlearning_rate = 1e-3\nschedule = "cosine"\nfreeze_bn = false\n[[shape]]\nkind = "x"\nsettings = [["a", 1.0], ]\n[task]\naugment = [\n "flip",\n]\n[heads]\nexits = [{ block = 1, channels = 8 }]');
  assert.deepEqual([plan.weight, plan.balance, plan.recipe.normsTrain, plan.recipe.rate(1, 2)], [0.5, true, true, 0.0005]);
  assert.deepEqual(plan.operations, ["flip"]);
  assert.throws(() => own.readPlan("[recipe]\nepochs = 0"), /no recipe/);
  assert.throws(() => own.readPlan("a = ?"), /cannot be read/);
});

test("learning rates follow each schedule as in Python, and one that is not known is refused", () => {
  const rates = (further) => {
    const { recipe } = own.readPlan(`[recipe]\nepochs = 1\nbatch_size = 8\nlearning_rate = 0.1\n${further}`);
    return [0, 1, 2, 3].map((step) => Number(recipe.rate(step, 4).toFixed(9)));
  };
  assert.deepEqual(rates('schedule = "constant"'), [0.1, 0.1, 0.1, 0.1]);
  assert.deepEqual(rates('schedule = "warmup"'), [0.025, 0.05, 0.075, 0.1]);
  assert.deepEqual(rates('schedule = "wsd"'), [0.025, 0.05, 0.075, 0.1]);
  const { recipe } = own.readPlan('[recipe]\nepochs = 100\nbatch_size = 8\nlearning_rate = 0.1\nschedule = "wsd"');
  assert.deepEqual([0, 79, 80, 90, 99].map((step) => Number(recipe.rate(step, 100).toFixed(9))), [0.1, 0.1, 0.1, 0.05, 0.005]);
  assert.deepEqual(rates('schedule = "cosine"'), [0.1, 0.085355339, 0.05, 0.014644661]);
  assert.deepEqual(rates('schedule = "exponential"\ndecay_rate = 0.5'), [0.1, 0.05, 0.025, 0.0125]);
  assert.deepEqual(rates('schedule = "exponential"\ndecay_rate = 0.25\ndecay_steps = 2'), [0.1, 0.05, 0.025, 0.0125]);
  assert.deepEqual(rates('schedule = "steps"\nmilestones = [[1, 0.01], [3, 1e-3]]'), [0.1, 0.01, 0.01, 0.001]);
  assert.deepEqual(rates('schedule = "steps"'), [0.1, 0.1, 0.1, 0.1]);
  assert.throws(() => rates('schedule = "linear"'), /schedule linear/);
});

test("a bundle with a changed, missing or stray file is refused", async () => {
  const files = source(`${BUNDLES}/tail/bundle`);
  const changed = await own.Bundle.open(async (name) => (name === "model.onnx" ? own.encode("x") : files(name)));
  await assert.rejects(changed.file("model.onnx"), /hash differs/);
  await assert.rejects(changed.file("../secret"), /lacks/);
  const stray = own.encode(JSON.stringify({ ...JSON.parse(own.decode(await files("bundle.json"))), files: { "../x": "0" } }));
  await assert.rejects(own.Bundle.open(async () => stray), /names/);
  await assert.rejects(own.Bundle.open(async () => undefined), /no bundle.json/);
  await assert.rejects(own.Bundle.open(async () => own.encode('{"format": 2}')), /format 2/);
});

test("folds hold every label as often, and depend on content alone", () => {
  const samples = [...Array(20).keys()].map((i) => ({ identity: `${(i * 7) % 20}`, label: i % 2 ? "a" : "b", sample: new Uint8Array() }));
  const folds = own.foldsOf(samples, [...samples.keys()], 5);
  assert.deepEqual(folds.map((rows) => rows.filter((row) => samples[row].label === "a").length), [2, 2, 2, 2, 2]);
  const names = (some, list) => list.map((rows) => rows.map((row) => some[row].identity).sort());
  const turned = [...samples].reverse();
  assert.deepEqual(names(turned, own.foldsOf(turned, [...turned.keys()], 5)), names(samples, folds));
});

test("random changes of maps keep their mean where nothing is cut off", () => {
  const maps = Float32Array.from({ length: 2 * 3 * 4 * 4 }, (_, i) => i);
  const flipped = own.augmented(maps, [3, 4, 4], ["flip"], 1, () => 0);
  assert.deepEqual([...flipped.slice(0, 4)], [3, 2, 1, 0]);
  assert.deepEqual(own.augmented(maps, [3, 4, 4], ["flip"], 0, () => 0), maps);
  const cropped = own.augmented(maps, [3, 4, 4], ["crop", "shift"], 1, own.randomOf(1));
  assert.ok(cropped.every(Number.isFinite) && cropped.some((value, i) => value !== maps[i]));
});

test("judging ends where the other answers cannot change the decision, and not before", () => {
  const rules = { confidence: 0.95, globalDrop: 0.01, least: 4 };
  const judged = (old, answers) => own.judgeSamples({ old, new: answers, known: old.map(() => true), labelled: true, oldCost: 1, newCost: 1 }, rules);
  const random = own.randomOf(2);
  let [early, all] = [0, 0];
  for (let round = 0; round < 300; round++) {
    const [one, two] = [random(), random()];
    const old = Array.from({ length: 12 }, () => random() < one);
    const truth = old.map(() => random() < two);
    const whole = judged(old, truth);
    const most = [...old.keys()].find((count) => own.isDecided(old, truth.map((right, i) => (i < count ? right : undefined)), rules)) ?? 12;
    assert.equal(judged(old.slice(0, most), truth.slice(0, most)).accepted, whole.accepted);
    all++;
    if (most < 12) early++;
  }
  assert.ok(early > all / 4, `${early} of ${all} ended early`);
  assert.equal(own.isDecided([false, false, false, false], [true, true, true, undefined], rules), false);
});

test("on a slow device folds are fewer and larger, and enough to judge by", () => {
  assert.deepEqual(own.planFolds(20, 5, 1, Infinity, 10), [5, 5]);
  assert.deepEqual(own.planFolds(20, 5, 1, 6, 10), [5, 5]);
  assert.deepEqual(own.planFolds(20, 5, 1, 4, 10), [5, 3]);
  assert.deepEqual(own.planFolds(20, 5, 1, 3.9, 10), [4, 2]);
  assert.deepEqual(own.planFolds(20, 5, 1, 2, 10), [2, 1]);
  assert.deepEqual(own.planFolds(20, 5, 1, 0.1, 10), [2, 1]);
  assert.deepEqual(own.planFolds(11, 5, 1, 2, 10), [2, 1]);
  assert.deepEqual(own.planFolds(60, 5, 1, 2, 10), [5, 1]);
});

test("the user's earlier samples: their marks are Python's, and every class is kept alike", () => {
  const count = (size) => new Uint8Array(size).map((_, i) => i % 256);
  assert.deepEqual([0, 128, 1000].map((size) => own.markOf(count(size))), MARKS);
  const marks = [5, 4, 3, 2, 1, 0];
  assert.deepEqual(own.everyClassAlike([0, 0, 0, 0, 1, 2], marks, 4), [2, 3, 4, 5]);
  assert.deepEqual(own.everyClassAlike([[1, 1], [1, 0], [0, 0], [0, 1]], marks, 3), [1, 2, 3]);
  assert.deepEqual(own.everyClassAlike([[0.5], [0.1], [1], [0]], marks, 2), [2, 3]);
});

test("several labels: targets, right answers, the AUC, and the rarest label", () => {
  const info = { labels: ["a", "b", "c"], loss: "multi-label" };
  assert.deepEqual(own.targetOf("c|a", info), [1, 0, 1]);
  assert.throws(() => own.targetOf("a|d", info), /no label d/);
  assert.equal(own.targetOf("b", { ...info, loss: "single-label" }), 1);
  const most = (row) => [0, 1, 2].map((label) => Number(label === row));
  assert.deepEqual([own.isRight(most(2), [1, 0, 1]), own.isRight(most(1), [1, 0, 1]), own.isRight(most(1), 1)], [true, false, true]);
  assert.deepEqual(own.classesOf([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1]]), [0, 0, -1, 2]);
  const targets = [[1, 0], [0, 0], [1, 0], [0, 0]];
  assert.equal(own.scoreOf([[3, 1], [1, 1], [1, 1], [0, 1]], targets, []), 0.875); // ties count half; b never occurs
  assert.equal(own.scoreOf([[1, 0], [1, 0]], [0, 1], [true, false]), 0.5);
});

test("a label brings the more general ones of the bundle's map", async () => {
  const map = { dog: ["dog", "animal"], Hund: ["dog", "animal"], animal: ["animal"] };
  const info = { labels: ["animal", "car", "dog"], loss: "multi-label", label_map: map };
  assert.deepEqual(own.targetOf("dog", info), [1, 0, 1]);
  assert.deepEqual(own.targetOf("car|Hund", info), [1, 1, 1]);
  assert.deepEqual(own.targetOf("animal", info), [1, 0, 0]);
  assert.throws(() => own.targetOf("constructor", info), /no label constructor/);
  const single = { ...info, loss: "single-label", label_map: { wolf: ["dog"], pet: ["dog", "animal"] } };
  assert.equal(own.targetOf("wolf", single), 2);
  assert.throws(() => own.targetOf("pet", single), /stands for 2/);
  const files = source(`${BUNDLES}/tags/bundle`);
  const tags = JSON.parse(own.decode(await files("bundle.json")));
  const [general, special] = tags.labels;
  const changed = own.encode(JSON.stringify({ ...tags, label_map: { [special]: [special, general] } }));
  const bundle = await own.Bundle.open(async (name) => (name === "bundle.json" ? changed : files(name)));
  const learner = await own.Learner.open(bundle, ort, own.memoryStore());
  await learner.keep(new Uint8Array(bundle.info.input_shape.reduce((a, b) => a * b)), special);
  assert.equal((await learner.samples())[0].label, `${special}|${general}`);
});

test("numbers: targets in deviations, near answers, and R²", () => {
  const info = { labels: ["size", "age"], loss: "regression", targets: { mean: [10, 50], std: [2, 20] } };
  assert.deepEqual(own.targetOf("12| 40", info), [1, -0.5]);
  for (const text of ["12", "12|", "12|old", "12|40|1", ""]) assert.throws(() => own.targetOf(text, info), /give a number for each/);
  assert.deepEqual([[1.5, -1], [1.6, -1]].map((logits) => own.isRight(logits, [1, -0.5], "regression")), [true, false]);
  const targets = [[0, 1], [2, 1], [4, 1]]; // the second is always the same: it says nothing
  assert.equal(own.scoreOf([[1, 0], [2, 0], [3, 0]], targets, [], "regression"), 0.75);
  assert.equal(own.scoreOf([[9, 0], [9, 0], [9, 0]], targets, [], "regression"), 0);
  const samples = ["3", "1", "2", "0"].map((identity, i) => ({ identity, label: `${i}`, sample: new Uint8Array() }));
  assert.deepEqual(own.foldsOf(samples, [0, 1, 2, 3], 2, false), [[3, 2], [1, 0]]);
});

test("balanced epochs hold each class as often", () => {
  const labels = [0, 0, 0, 0, 0, 0, 1, 1];
  const rows = own.balanced(labels, own.randomOf(1));
  assert.equal(rows.filter((row) => labels[row] === 1).length, 4);
  assert.equal(rows.length, 8);
});

test("what cannot learn here says so, and predicts", async () => {
  const files = source(`${BUNDLES}/exits/bundle`);
  const info = JSON.parse(own.decode(await files("bundle.json")));
  delete info.files["train/exit0.onnx"]; // as of exits that are solved for
  const bundle = await own.Bundle.open(async (name) => (name === "bundle.json" ? own.encode(JSON.stringify(info)) : files(name)));
  const learner = await own.Learner.open(bundle, ort, own.memoryStore());
  assert.match((await learner.status()).refusal, /exits in closed form: they predict here, but learn in Python only/);
  await assert.rejects(learner.learn(), /learn in Python only/);
  await assert.rejects(learner.keep(new Float32Array(64), "another"), /the bundle has no label another\. This bundle has exits in closed form/);
  assert.match((await own.Learner.open(await own.Bundle.open(files), ort, own.memoryStore()).then((one) => one.status())).fixed, /each of its exits has a head of its own: export a trial without/);
  const { label } = await learner.predict(new Float32Array(bundle.info.input_shape.reduce((a, b) => a * b)));
  assert.ok(bundle.info.labels.includes(label));
});

for (const name of ["tail", "int8", "adapters", "solved", "exits"]) {
  test(`${name}: a round learns, goes back, and gives a bundle that learns again`, async () => {
    const folder = `${BUNDLES}/${name}/bundle`;
    const bundle = await own.Bundle.open(source(folder));
    assert.equal((bundle.info.int8?.layers ?? 0) > 0, name === "int8");
    const store = own.memoryStore();
    const learner = await own.Learner.open(bundle, ort, store);
    await assert.rejects(learner.rollBack(), /as it was exported/);
    const random = own.randomOf(5);
    const shape = bundle.info.input_shape;
    const [one, two] = bundle.info.labels;
    for (let i = 0; i < 30; i++) { // two kinds of pictures that no digit is like
      const sample = new Float32Array(shape.reduce((a, b) => a * b)).map((_, at) => ((at >> (i % 2 ? 0 : 3)) % 2) + 0.1 * random());
      await learner.keep(sample, i % 2 ? one : two);
    }
    const rules = { confidence: 0.95, globalDrop: 0.2, least: 10 };
    const verdict = await learner.learn(undefined, rules);
    assert.ok(verdict.accepted, verdict.reason);
    assert.ok(verdict.after > verdict.before);
    assert.equal((await learner.status()).round, "0001");
    const probe = (await learner.samples())[3];
    const answer = await learner.predict(probe.sample);
    const zipped = await own.Bundle.unzip(new Uint8Array(await (await learner.zip()).arrayBuffer()));
    assert.equal(zipped.info.parent, bundle.identity);
    assert.equal(verdict.earlierBefore === undefined, name === "exits"); // the others ask the user's earlier samples too
    if (zipped.has(EARLIER)) {
      const { tensors } = await zipped.tensors(EARLIER);
      const marks = [...tensors.get("marks").data].map(Number);
      assert.ok((await learner.samples()).every(({ sample }) => marks.includes(own.markOf(sample))));
      assert.equal(marks.length, zipped.info.train.own_samples);
      assert.equal(marks.length, bundle.info.train.own_samples + 30);
    }
    const taught = await own.Learner.open(zipped, ort, own.memoryStore());
    assert.deepEqual((await taught.predict(probe.sample)).probabilities, answer.probabilities);
    const again = await own.Learner.open(bundle, ort, store);
    assert.deepEqual((await again.predict(probe.sample)).probabilities, answer.probabilities);
    assert.match((await again.learn(undefined, rules)).reason, /0 photos to judge by are too few/);
    assert.equal(await again.rollBack(), "0000");
    assert.notDeepEqual((await again.predict(probe.sample)).probabilities, answer.probabilities);
    await again.forget();
    assert.deepEqual(await store.keys(""), []);
  });
}

test("photos that are all answered right are learned by a head that is solved for, as it only adds them, and by no tail", async () => {
  for (const name of ["solved", "tail"]) {
    const learner = await own.Learner.open(await own.Bundle.open(source(`${BUNDLES}/${name}/bundle`)), ort, own.memoryStore());
    const random = own.randomOf(7);
    const size = learner.bundle.info.input_shape.reduce((a, b) => a * b);
    const scene = new Float32Array(size).map(random);
    for (let i = 0; i < 12; i++) {
      const sample = scene.map((value) => value + 0.05 * random());
      await learner.keep(sample, (await learner.predict(sample)).label);
    }
    const { accepted, reason } = await learner.learn(undefined, { confidence: 0.95, globalDrop: 0.2, least: 10 });
    assert.equal(accepted, name === "solved", reason);
    assert.match(reason, /12 of 12 right before, 12 after/);
  }
});

test("exits: what is kept of samples is what Python keeps, and nothing of the check samples", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const held = () => (collect(), process.memoryUsage().arrayBuffers);
  const files = source(`${BUNDLES}/exits/bundle`);
  const info = JSON.parse(own.decode(await files("bundle.json")));
  const COUNT = 4000;
  const changed = new Map();
  for (const name of ["train/replay.safetensors", "train/check.safetensors"]) { // the same samples, often
    const file = own.readTensors(await files(name));
    for (const [key, { type, shape, data }] of file.tensors) {
      if (key !== "codes" && key !== "labels") continue;
      const size = data.length / shape[0];
      const many = new data.constructor(COUNT * size);
      for (let i = 0; i < COUNT; i++) many.set(data.subarray((i % shape[0]) * size, ((i % shape[0]) + 1) * size), i * size);
      file.tensors.set(key, { type, shape: [COUNT, ...shape.slice(1)], data: many });
    }
    changed.set(name, own.writeTensors(file));
    info.files[name] = own.sha256(changed.get(name));
  }
  changed.set("bundle.json", own.encode(JSON.stringify(info)));
  const bundle = await own.Bundle.open(async (name) => changed.get(name) ?? files(name));
  const model = await own.Model.open(bundle, ort);
  const trainer = await own.openTrainer(bundle, ort, model);
  const random = own.randomOf(3);
  const sample = Float32Array.from({ length: bundle.info.input_shape.reduce((a, b) => a * b) }, random);
  let floats = 0; // of a sample: what each exit reads
  for (let [at, features, shape] = [0, model.input(sample), [1, ...bundle.info.input_shape]]; at < model.exits - 1; at++) {
    ({ features, shape } = await model.segment(at, features, shape));
    floats += features.length;
  }
  const before = held();
  assert.equal((await trainer.checked()).right.length, COUNT);
  const checked = (held() - before) / COUNT;
  assert.ok(checked < floats, `${checked} bytes of a check sample, of ${4 * floats}`);
  await trainer.expected(20);
  const replayed = (held() - before) / COUNT;
  assert.ok(replayed < 2 * floats, `${replayed} bytes of a replay sample, of ${4 * floats}`);
  const { features } = await trainer.prepare([sample], [bundle.info.labels[0]]);
  assert.equal(features[0].record.length, own.readTensors(changed.get("train/replay.safetensors")).tensors.get("codes").shape[1]);
  await trainer.release();
  await model.release();
});

test("a sample that is none of the user's classes is answered unknown where that is asked for, until a tail has trained", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/tail/bundle`));
  const [told, plain] = [await own.Model.open(bundle, ort, true), await own.Model.open(bundle, ort)];
  const random = own.randomOf(3);
  const sample = Float32Array.from({ length: bundle.info.input_shape.reduce((a, b) => a * b) }, random);
  const [one, today] = [await told.predict(sample), await plain.predict(sample)];
  assert.equal(one.answer, one.unknown > 1 ? "unknown" : one.label);
  assert.deepEqual([today.unknown, today.answer, today.label], [undefined, one.label, one.label]);
  const trainer = await own.openTrainer(bundle, ort, plain);
  const info = JSON.parse(own.decode((await trainer.save([], 0, null, null)).get("bundle.json")));
  assert.deepEqual(["unknown" in info, "unknown.onnx" in info.files, "unknown.onnx" in bundle.info.files], [false, false, true]);
  const exits = await own.Bundle.open(source(`${BUNDLES}/exits/bundle`));
  await assert.rejects(own.Model.open(exits, ort, true), /cannot tell which samples are unknown/);
  for (const part of [trainer, told, plain]) await part.release();
});

for (const name of ["solved-photos", "photos"]) {
  test(`${name}: a new label is one more row of the head: it is learned, brought on, undone and forgotten`, async () => {
    const bundle = await own.Bundle.open(source(`${BUNDLES}/${name}/bundle`));
    const learner = await own.Learner.open(bundle, ort, own.memoryStore());
    const random = own.randomOf(5);
    const size = bundle.info.input_shape.reduce((a, b) => a * b);
    const stripes = () => new Uint8Array(size).map((_, at) => 200 * ((at >> 2) % 2) + 20 * random());
    for (let i = 0; i < 12; i++) await learner.keep(stripes(), "stripes");
    for (const text of ["a|b", "a\nb", "x".repeat(101)]) await assert.rejects(learner.keep(stripes(), text), /must be printable text/);
    const probe = stripes();
    assert.notEqual((await learner.predict(probe)).label, "stripes");
    const rules = { confidence: 0.95, globalDrop: 0.05, least: 10 };
    const verdict = await learner.learn(undefined, rules);
    assert.ok(verdict.accepted && verdict.before === 0 && verdict.after === verdict.samples, verdict.reason);
    assert.ok(verdict.earlierAfter > verdict.earlierBefore - 0.05, verdict.reason); // the user's earlier samples are asked too
    assert.deepEqual((await learner.status()).labels, [...bundle.info.labels, "stripes"]);
    const { label, probabilities } = await learner.predict(probe);
    assert.equal(label, "stripes");
    const zipped = await own.Bundle.unzip(new Uint8Array(await (await learner.zip()).arrayBuffer()));
    assert.equal(zipped.info.parent, bundle.identity);
    assert.equal(zipped.info.train.own_samples, bundle.info.train.own_samples + 12);
    const taught = await own.Learner.open(zipped, ort, own.memoryStore());
    assert.deepEqual((await taught.predict(probe)).probabilities, probabilities);
    // the next round learns no new label, and brings on what has got one
    const waves = () => new Uint8Array(size).map((_, at) => 200 * ((at >> 6) % 2) + 20 * random());
    const { label: wrong } = await learner.predict(waves());
    for (let i = 0; i < 12; i++) await learner.keep(waves(), bundle.info.labels.find((other) => other !== wrong));
    const next = await learner.learn(undefined, rules);
    assert.ok(next.accepted, next.reason);
    const both = await own.Bundle.unzip(new Uint8Array(await (await learner.zip()).arrayBuffer()));
    assert.deepEqual([both.info.parent, both.info.labels], [zipped.identity, zipped.info.labels]);
    assert.equal((await learner.predict(probe)).label, "stripes");
    await learner.rollBack();
    await learner.rollBack();
    assert.deepEqual((await learner.status()).labels, bundle.info.labels);
    await learner.forget();
    assert.deepEqual([(await learner.status()).labels, (await learner.samples()).length], [bundle.info.labels, 0]);
  });
}

test("the same samples train a network with dropouts by the same steps", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/photos/bundle`));
  const random = own.randomOf(5);
  const size = bundle.info.input_shape.reduce((a, b) => a * b);
  const samples = Array.from({ length: 12 }, () => new Uint8Array(size).map(() => 255 * random()));
  const trainer = await own.openTrainer(bundle, ort, await own.Model.open(bundle, ort));
  const prepared = await trainer.prepare(samples, samples.map((_, at) => bundle.info.labels[at % 2]));
  assert.deepEqual(await trainer.train(prepared), await trainer.train(prepared));
});

/** Return the samples of a label that a bundle does not have, from files of numpy. */
async function stripesOf(name) {
  const folder = `${BUNDLES}/${name}/stripes`;
  const files = await Promise.all((await readdir(folder)).sort().map((file) => readFile(`${folder}/${file}`)));
  return files.map((content) => new Float32Array(new Uint8Array(content.subarray(10 + content.readUInt16LE(8))).buffer));
}

for (const name of ["tail", "adapters"]) {
  test(`the row of a new label is what tuner labels add gives a trained tail: ${name}`, async () => {
    const before = await own.Bundle.open(source(`${BUNDLES}/${name}/bundle`));
    const taught = await own.Bundle.open(source(`${BUNDLES}/${name}/taught`));
    const bundle = await own.withLabels(before, ["stripes"]);
    assert.deepEqual(bundle.info.labels, taught.info.labels);
    const stripes = await stripesOf(name);
    const [old, model, python] = [await own.Model.open(before, ort), await own.Model.open(bundle, ort), await own.Model.open(taught, ort)];
    const features = await Promise.all(stripes.map(async (sample) => (await old.features(sample))[0]));
    const [replay, earlier] = await Promise.all(["replay", "own"].map(async (file) => own.Replay.read(await before.tensors(`train/${file}.safetensors`))));
    const file = await bundle.tensors("weights.safetensors");
    const rows = await own.NewRows.of(ort, bundle, before);
    const weights = await rows.solved(file.tensors, { features, labels: stripes.map(() => 10) }, replay.extended(earlier.records, earlier.labels));
    const { tensors } = await taught.tensors("weights.safetensors");
    const [weight, bias] = await own.headOf(bundle);
    for (const part of [weight, bias]) {
      const [ours, theirs] = [weights.get(part), tensors.get(part)];
      assert.deepEqual(ours.shape, theirs.shape);
      const last = ours.data.length * (10 / 11);
      assert.deepEqual(ours.data.subarray(0, last), theirs.data.subarray(0, last)); // the other rows are as they were
      ours.data.subarray(last).forEach((value, i) => assert.ok(Math.abs(value - theirs.data[last + i]) < 1e-4, `${part}: ${value}, not ${theirs.data[last + i]}`));
    }
    // the tail and the model give Python's logits; without the row they give those of before
    const tail = await own.Tail.open(ort, await bundle.file("train/tail.onnx"));
    for (const [i, sample] of stripes.entries()) {
      const [[found], [expected], [given], [unlearned]] = [await tail.logits(features[i], 1, weights), await python.logits(sample), await old.logits(sample), await model.logits(sample)];
      expected.forEach((value, label) => assert.ok(Math.abs(value - found[label]) < 1e-4, `${found}, not ${expected}`));
      given.forEach((value, label) => assert.ok(Math.abs(value - unlearned[label]) < 1e-6));
      assert.equal(unlearned[10], -1e4);
    }
    // and the step is Python's
    const [step, theirs] = await Promise.all([bundle, taught].map((one) => one.file("train/step.onnx")));
    const same = { count: 11, axes: new Map() }; // but for the blanks in its metadata
    assert.deepEqual(own.resized(step, same), own.resized(theirs, same));
    // a step in which the new label takes part without a sample is refused, as one with smoothed labels is
    const unused = rows.requireSameStep(await before.file("train/step.onnx"), step, weights);
    if (name === "tail") await assert.rejects(unused, /cannot be given another label/);
    else await assert.rejects(unused, /which the weights lack/); // of adapters
    for (const part of [rows, tail, old, model, python]) await part.release();
  });
}

test("what a new label gains does not make up for photos that it takes from others", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/solved-photos/bundle`));
  const learner = await own.Learner.open(bundle, ort, own.memoryStore());
  const random = own.randomOf(5);
  const size = bundle.info.input_shape.reduce((a, b) => a * b);
  for (let i = 0; i < 38; i++) { // all alike, and eight of them are right already
    const stripes = new Uint8Array(size).map((_, at) => 200 * ((at >> 2) % 2) + 20 * random());
    await learner.keep(stripes, i < 8 ? (await learner.predict(stripes)).label : "stripes");
  }
  const { accepted, reason } = await learner.learn(undefined, { confidence: 0.95, globalDrop: 0.2, least: 10 });
  assert.ok(!accepted);
  assert.match(reason, /worse on photos that were right before: 8 of 38 right before, 30 after/);
});

test("a round that had no time for all samples says how many judged, and what the rest takes", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/tail/bundle`));
  const learner = await own.Learner.open(bundle, ort, own.memoryStore());
  const random = own.randomOf(5);
  const size = bundle.info.input_shape.reduce((a, b) => a * b);
  for (let i = 0; i < 30; i++) { // four in five are right already: no fifteen of them decide
    const sample = new Float32Array(size).map(() => random());
    const { label } = await learner.predict(sample);
    await learner.keep(sample, i % 5 ? label : bundle.info.labels.find((other) => other !== label));
  }
  const verdict = await learner.learn(undefined, { confidence: 0.95, globalDrop: 0.2, least: 10 }, 0);
  assert.ok(!verdict.accepted && verdict.unjudged > 0 && verdict.samples + verdict.unjudged === 30 && verdict.seconds > 0, verdict.reason);
});

test("threads are as many as work at once", async () => {
  const helpers = (delay) => async (count) => Array.from({ length: count }, () => () => new Promise((resolve) => setTimeout(resolve, delay)));
  assert.equal(await own.measuredThreads(2, helpers(500)), 1); // the other core is busy
  assert.equal(await own.measuredThreads(1, helpers(0)), 1);
});

test("a bundle of sounds hears by the second, and learns a sound from ten clips", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/sounds/bundle`));
  const hearing = await own.Hearing.open(bundle, ort);
  const sound = (pitch, seed, warble = 0) => {
    const random = own.randomOf(seed);
    return Float32Array.from({ length: 16000 }, (_, i) => {
      const at = i / own.RATE;
      return 0.5 * Math.sin(2 * Math.PI * pitch * at + warble * Math.sin(2 * Math.PI * 7 * at)) + 0.07 * (random() - 0.5);
    });
  };
  const { heard, label } = await hearing.hear(Float32Array.of(...sound(300, 1), ...sound(2500, 2), ...sound(2500, 3)));
  assert.equal(label, "high");
  assert.deepEqual([heard[0], heard.at(-1)].map(({ prediction }) => prediction.label), ["low", "high"]);
  assert.ok(Math.abs(heard[1].second - heard[0].second - 0.1) < 1e-9); // ten frames of 10 ms
  assert.equal((await hearing.patches(new Float32Array(10))).length, 1);
  // in parts of a minute, as the whole
  const long = Float32Array.from({ length: 62 * own.RATE }, (_, i) => Math.sin(i * i * 1e-7));
  const [whole, last] = [await hearing.patches(long), await hearing.patches(long.subarray(-3 * own.RATE))];
  assert.equal(whole.length, Math.floor((long.length - 3440) / 1600) + 1);
  whole.at(-1).forEach((value, i) => assert.ok(Math.abs(value - last.at(-1)[i]) < 1e-5));
  assert.deepEqual(own.spanOf(3, hearing.patching), [29 * 1600, 38 * 1600 + 3440]);
  assert.equal(own.spanOf(1, { length: 16000, hop: 48000 }), undefined);

  const wider = await own.withLabels(bundle, ["siren"]);
  const trainer = await own.openTrainer(wider, ort, await own.Model.open(wider, ort));
  const clips = await Promise.all(Array.from({ length: 11 }, (_, i) => hearing.patches(sound(1200 + 20 * i, i, 40))));
  const patches = clips.slice(1).flat();
  const began = performance.now();
  const { features, labels } = await trainer.prepare(patches, patches.map(() => "siren"));
  await trainer.train({ features, labels, places: patches.map(() => 0) });
  assert.ok(performance.now() - began < 2000);
  const asked = (await trainer.prepare(clips[0], clips[0].map(() => "siren"))).features;
  const answers = await trainer.answers(asked);
  const right = answers.filter(({ logits }) => logits.indexOf(Math.max(...logits)) === wider.info.labels.indexOf("siren"));
  assert.ok(right.length > 0.8 * answers.length, `${right.length} of ${answers.length}`);
  await hearing.release();
});

test("a round of clips judges each by models without it", async () => {
  const bundle = await own.Bundle.open(source(`${BUNDLES}/sounds/bundle`));
  const learner = await own.Learner.open(bundle, ort, own.memoryStore());
  const hearing = await own.Hearing.open(bundle, ort, learner);
  const { trainer, trained } = { trainer: await own.openTrainer(bundle, ort, await own.Model.open(bundle, ort)), trained: [] };
  const clip = (pitch, seed) => {
    const random = own.randomOf(seed);
    return hearing.clip(Float32Array.from({ length: 8000 }, (_, i) => 0.5 * Math.sin((2 * Math.PI * pitch * i) / own.RATE) + 0.07 * (random() - 0.5)));
  };
  const samples = [];
  for (let i = 0; i < 12; i++) {
    const sample = await clip(i % 2 ? 300 : 2500, i);
    samples.push({ sample, identity: own.identityOf(sample), label: i % 2 ? "low" : "high" });
  }
  const train = trainer.train.bind(trainer);
  trainer.train = (some, ...rest) => (trained.push(some.features.length), train(some, ...rest));
  const parts = own.partsOf(samples[0].sample, bundle.info).length;
  assert.ok(parts > 1);
  const { verdict } = await own.runRound(await own.Model.open(bundle, ort), trainer, samples, new Set(), async () => ({}), { ...own.RULES, seconds: Infinity });
  assert.ok(verdict.samples <= 12);
  assert.ok(trained.length > 1 && trained.every((count) => count % parts === 0), String(trained));
  await hearing.release();
});

test("a sound is resampled without loss below 7 kHz, and files say their rate", () => {
  for (const rate of [8000, 44100, 48000]) {
    for (const pitch of [100, 3500, ...(rate > 16000 ? [7000] : [])]) {
      const tone = (at) => Float32Array.from({ length: at / 10 }, (_, i) => Math.sin((2 * Math.PI * pitch * i) / at));
      const [found, expected] = [own.resample(tone(rate), rate), tone(own.RATE)];
      assert.equal(found.length, expected.length);
      for (let i = 200; i < 1400; i++) assert.ok(Math.abs(found[i] - expected[i]) < 0.02, `${rate} Hz, ${pitch} Hz: ${found[i] - expected[i]}`);
    }
  }
  const wav = new Uint8Array(44);
  wav.set(own.encode("RIFF----WAVEfmt "));
  new DataView(wav.buffer).setUint32(24, 22050, true);
  assert.deepEqual([own.rateOf(wav), own.rateOf(new Uint8Array(9)), own.rateOf(new Uint8Array(0))], [22050, 48000, 48000]);
});
