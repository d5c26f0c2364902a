"""What int8 costs and gains on the clothing photos: accuracy, milliseconds and bytes next to the bundle in float32.

One plan (the last block of MobileNetV2 trains for 8 epochs on stored features) is exported twice with ``--trainable``:
in float32 and with ``--int8``. Predictions run from decoded pixels, one thread, the two bundles in turns. The naive arm
takes ranges from the smallest and the largest value of the same calibration samples. What int8 loses, with its bound,
is the subject of ``benchmarks.models.int8_loss``.
"""

import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave
from benchmarks.lib.setup import clothing, plan_for
from tuner.backends.base import Trial
from tuner.backends.torch.features.engines import cut_name, exported_prefix
from tuner.backends.torch.features.int8 import calibration_batches
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.onnx.quantise import Quantiser, with_prefix
from tuner.bundle.format import MODEL, WEIGHTS, Bundle, new_folder
from tuner.commands.bundles.export import write_bundle
from tuner.metrics import accuracy
from tuner.ort.session import Session
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import in_int8
from tuner.plugin.core import build_host
from tuner.runtime import Personaliser, Trainer
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Samples, Task

MOST_BYTES, MOST_TIME = 0.45, 0.8
NEW_SAMPLES = 40


def bundles(task: Task, folder: Path) -> dict[str, Path]:
    """Train one plan, and export it in both precisions."""
    loaded = load(task)
    plan = plan_for(task, loaded, loaded.info.num_blocks - 1, bits=8, recipe=RecipePlan(epochs=8), alpha=0.05)
    weights, made = folder / WEIGHTS, {"float32": folder / "float32", "int8": folder / "int8"}
    with open_remote(build_host(), task, [plan.runtime.backend]) as sessions:
        session = sessions[plan.runtime.backend]
        session.train(Trial(plan, 0, Store(folder / "store"), weights))
        for (name, out), own in zip(made.items(), (plan, in_int8(plan, 1.0)), strict=True):
            with new_folder(out) as part:
                write_bundle(session, own, weights, part, {"parent": None}, trainable=True)
            print(f"{name} is exported", flush=True)
    return made


def naive(task: Task, model: Path, folder: Path, most: int) -> dict[str, float]:
    """Return accuracies with ranges from the smallest to the largest value."""
    loaded = load(task)
    cut = cut_name(loaded.info.num_blocks - 1)
    quantiser = Quantiser(exported_prefix(loaded), [cut], calibration_batches(task), percentile=100.0)
    with_prefix(model, quantiser.quantised(), folder / MODEL)
    session = Session(folder / MODEL)
    domains = {"local": task.local, "global": task.global_}
    return {name: _accuracy(task, session, part.val, most) for name, part in domains.items() if part is not None}


def _accuracy(task: Task, session: Session, samples: Samples, most: int) -> float:
    rows = np.random.default_rng(0).permutation(len(samples))[:most]
    logits = [session.logits(task.batch(samples, rows[at : at + 32])) for at in range(0, len(rows), 32)]
    return accuracy(np.concatenate(logits), samples.labels[rows])


def trained_again(bundle: Path, task: Task) -> tuple[float, float, float]:
    """Train a bundle on new photos; return the first and the last epoch's loss, and what is forgotten, as a share."""
    trainer, samples = Trainer(bundle, threads=1), task.local.val
    rows = range(NEW_SAMPLES)
    trainer.add([samples.load(row) for row in rows], [task.labels[int(samples.labels[row])] for row in rows])
    losses = trainer.train()
    return losses[0], losses[-1], (trainer.before or 0.0) - (trainer.global_accuracy() or 0.0)


def size(folder: Path) -> int:
    """Return the bytes of all files of a bundle."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Run the benchmark."""
    options = benchmark_parser(__doc__).parse_args()
    task = clothing(160, 200 if options.quick else None, 100 if options.quick else None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = bundles(task, folder)
        (folder / "naive").mkdir()
        plainly = naive(task, made["float32"] / MODEL, folder / "naive", 200 if options.quick else 2_000)
        pixels = task.local.val.load(0)
        models = {arm: Personaliser(path, threads=1) for arm, path in made.items()}
        arms = {arm: partial(model.predict, pixels) for arm, model in models.items()}
        times = interleave(arms, 30 if options.quick else 200, warmup=5)
        first, last, forgotten = trained_again(made["int8"], task)
        info, sizes = Bundle.open(made["int8"]).info.int8, {arm: size(path) for arm, path in made.items()}
    if info is None:
        raise RuntimeError("the bundle is not in int8")
    rows: list[Row] = [
        {
            "precision": arm,
            "local": values["local_accuracy"],
            "global": values["global_accuracy"],
            "ms": 1000 * median(times[arm]),
            "MB": sizes[arm] / 1e6,
            "float layers": kept,
        }
        for arm, values, kept in (("float32", info.float32, ""), ("int8", info.int8, info.float_layers))
    ]
    rows.append({"precision": "int8, naive", **plainly})
    share, faster = sizes["int8"] / sizes["float32"], median(times["int8"]) / median(times["float32"])
    claims = [
        Claim(f"the whole bundle takes at most {MOST_BYTES} of the bytes", "half of float32", f"{share:.2f}",
              share <= MOST_BYTES),
        Claim(f"a prediction takes at most {MOST_TIME} of the time", "float32", f"{faster:.2f} of medians",
              faster <= MOST_TIME),
        Claim("the bundle trains again", "–", f"loss {first:.2f} to {last:.2f} on {NEW_SAMPLES} new photos; "
              f"{100 * forgotten:.1f} points of the check samples forgotten", last < first),
    ]  # fmt: skip
    finish("int8", rows, claims, options.json)


if __name__ == "__main__":
    main()
