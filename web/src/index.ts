/** Predict with a bundle, and train it again, in a browser or any other place that runs onnxruntime-web. */

export { Bundle, type BundleInfo, type InputSpec } from "./bundle.ts";
export { TunerError } from "./bytes.ts";
export { Client } from "./client.ts";
export { judgeCheck, judgeSamples, RULES, type Rules, type Verdict } from "./gate.ts";
export { type Answering, type Heard, Hearing, type Picture } from "./hearing.ts";
export { decodePhoto, fit, normalise, type Pixels } from "./image.ts";
export { type Change, Learner, type Status } from "./learner.ts";
export { Model, type Prediction, type Sample } from "./model.ts";
export { configure, type Runtime } from "./session.ts";
export { decodeSound, type Patching, RATE } from "./sound.ts";
export { browserStore, memoryStore, type Store } from "./store.ts";
export type { Trainer } from "./trainer.ts";
export { openTrainer } from "./trainers.ts";
export { readZip, writeZip } from "./zip.ts";
