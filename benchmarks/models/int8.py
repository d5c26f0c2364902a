"""What int8 costs and gains on the clothing photos: accuracy, milliseconds and bytes next to the bundle in float32.

One plan (the last block of MobileNetV2 trains for 8 epochs on stored features) is exported twice with ``--trainable``:
in float32 and with ``--int8``. Predictions run from decoded pixels, one thread, the two bundles in turns. The naive arm
takes ranges from the smallest and the largest value of the same calibration samples.

``--parts loss``: what accuracy int8 costs, paired by photos, with the bound of 95 % confidence. All local photos judge,
so that the bound is narrow: in each of `FOLDS` folds the plan trains, and the blocks are quantised, without the fold's
photos, and answers to these are paired with those in float32. The arm ``quantised`` has the tail that was trained in
float32, as ``tuner export --int8`` does; the arm ``trained`` trained its tail on what the quantised blocks compute, as
trials with ``runtime.precision = "int8"`` do. Global photos are answered by the tails of all folds: what counts is the
share of the tails that have a photo right, as one tail loses up to 0.9 points more than another.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave
from benchmarks.lib.setup import Joined, clothing, plan_for
from tuner.backends.base import Trial, silent
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.engines import cut_name, exported_prefix
from tuner.backends.torch.features.int8 import calibration_batches
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import validation_selections
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.onnx.quantise import Quantiser, with_prefix
from tuner.backends.torch.trial.inputs import stored_inputs
from tuner.backends.torch.trial.scoring import logits
from tuner.bundle.format import MODEL, WEIGHTS, Bundle, new_folder
from tuner.commands.bundles.export import write_bundle
from tuner.machine.control_group import usable_processors
from tuner.metrics import accuracy
from tuner.ort.session import Session
from tuner.plan.parts import RecipePlan, RuntimePlan
from tuner.plan.trial import in_int8
from tuner.plugin.core import build_host
from tuner.runtime import Personaliser, Trainer
from tuner.runtime.infer.mcnemar import most_drop
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Domain, Samples, Subset, Task
from tuner.task.partition import fold_numbers

MOST_BYTES, MOST_TIME = 0.45, 0.8
NEW_SAMPLES = 40
FOLDS, MOST_POINTS, CONFIDENCE = 4, 1.0, 0.95
IN_INT8 = RuntimePlan(threads=usable_processors(), precision="int8", int8_loss=1.0)
ARMS = ("float32", "quantised", "trained")
#: Whether each answer is right, by arm and domain.
Right = Mapping[str, Mapping[str, npt.NDArray[np.bool_]]]


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


def compared(task: Task, folder: Path, *, quick: bool) -> tuple[list[Row], list[Claim]]:
    """Return what the two bundles take and answer."""
    made = bundles(task, folder)
    (folder / "naive").mkdir()
    plainly = naive(task, made["float32"] / MODEL, folder / "naive", 200 if quick else 2_000)
    pixels = task.local.val.load(0)
    models = {arm: Personaliser(path, threads=1) for arm, path in made.items()}
    arms = {arm: partial(model.predict, pixels) for arm, model in models.items()}
    times = interleave(arms, 30 if quick else 200, warmup=5)
    first, last, forgotten = trained_again(made["int8"], task)
    info, sizes = Bundle.open(made["int8"]).info.int8, {arm: size(path) for arm, path in made.items()}
    if info is None:
        raise RuntimeError("the bundle is not in int8")
    rows: list[Row] = [
        {
            "precision": arm, "local": values["local_accuracy"], "global": values["global_accuracy"],
            "ms": 1000 * median(times[arm]), "MB": sizes[arm] / 1e6, "float layers": kept,
        }
        for arm, values, kept in (("float32", info.float32, ""), ("int8", info.int8, info.float_layers))
    ]  # fmt: skip
    rows.append({"precision": "int8, naive", **plainly})
    share, faster = sizes["int8"] / sizes["float32"], median(times["int8"]) / median(times["float32"])
    return rows, [
        Claim(f"the whole bundle takes at most {MOST_BYTES} of the bytes", "half of float32", f"{share:.2f}",
              share <= MOST_BYTES),
        Claim(f"a prediction takes at most {MOST_TIME} of the time", "float32", f"{faster:.2f} of medians",
              faster <= MOST_TIME),
        Claim("the bundle trains again", "–", f"loss {first:.2f} to {last:.2f} on {NEW_SAMPLES} new photos; "
              f"{100 * forgotten:.1f} points of the check samples forgotten", last < first),
    ]  # fmt: skip


def folds_of(task: Task) -> list[Task]:
    """Return the task once a fold: its local photos are those for validation, all others those to train on."""
    photos = Joined(task.local.train, task.local.val)
    numbers, tasks = fold_numbers(photos.labels, FOLDS), list[Task]()
    for fold in range(1, FOLDS + 1):
        train, val = (Subset(photos, np.flatnonzero(is_in)) for is_in in (numbers != fold, numbers == fold))
        tasks.append(replace(task, local=Domain(train, val)))
    return tasks


def answered(task: Task, store: Store, folder: Path) -> Right:
    """Train the plan in both precisions; return which answers to the validation photos are right."""
    loaded = load(task)
    plan = plan_for(task, loaded, loaded.info.num_blocks - 1, bits=8, recipe=RecipePlan(epochs=8), alpha=0.05)
    plans = {"float32": plan, "int8": replace(plan, runtime=IN_INT8)}
    with open_remote(build_host(), task, [plan.runtime.backend]) as sessions:
        session = sessions[plan.runtime.backend]
        for name, own in plans.items():
            session.fill([own], store)
            session.train(Trial(own, 0, store, folder / name / WEIGHTS))
    right: dict[str, dict[str, npt.NDArray[np.bool_]]] = {arm: {} for arm in ARMS}
    for arm, blocks, trained in zip(ARMS, ("float32", "int8", "int8"), ("float32", "float32", "int8"), strict=True):
        tail = loaded.tail(plan.split)
        tail.load_state_dict(load_file(folder / trained / WEIGHTS))
        access = Access(task, loaded, store, usable_processors(), silent, plans[blocks].runtime.precision)
        for selection in validation_selections(task):
            inputs = stored_inputs(Reader(access, plan.split, VALIDATION_BITS, [selection]), [selection])
            right[arm][selection.domain] = logits(tail, inputs).argmax(1) == inputs.labels
    return right


def losses(task: Task, folder: Path) -> list[Row]:
    """Return what int8 loses, paired by photos: of all local ones, and of the global ones in the mean of the tails."""
    store, found = Store(folder / "folds"), list[Right]()
    for number, fold in enumerate(folds_of(task)):
        found.append(answered(fold, store, folder / f"fold{number}"))
        print(f"fold {number + 1} of {FOLDS} is done", flush=True)
    rows: list[Row] = []
    for arm in ARMS[1:]:
        for domain in ("local", "global"):
            answers = [np.array([right[one][domain] for one in ("float32", arm)], np.float64) for right in found]
            whole, own = np.concatenate(answers, axis=1) if domain == "local" else np.mean(answers, axis=0)
            rows.append({
                "loss of": arm, "domain": domain, "photos": len(own), "float32": float(whole.mean()),
                "int8": float(own.mean()), "lost": float(np.maximum(whole - own, 0).sum()),
                "won": float(np.maximum(own - whole, 0).sum()), "points": 100 * float(whole.mean() - own.mean()),
                "at most": 100 * most_drop(whole, own, CONFIDENCE),
            })  # fmt: skip
    return rows


def loss_claim(arm: str, rows: Sequence[Row]) -> Claim:
    """Return the claim that an arm loses at most a point of each accuracy, with 95 % confidence."""
    own = {str(row["domain"]): row for row in rows if row["loss of"] == arm}
    measured = "; ".join(
        f"{row['points']:.2f} points of {domain} accuracy, at most {row['at most']:.2f} ({row['photos']:,} photos)"
        for domain, row in own.items()
    )
    held = all(float(str(row["at most"])) <= MOST_POINTS for row in own.values())
    claim = f"int8, {arm}: no accuracy falls by more than a point, with 95 % confidence"
    return Claim(claim, "naively once: 4.0 points", measured, held)


def main() -> None:
    """Run the benchmark."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=("bundles", "loss"), default=["bundles", "loss"])
    asked = parser.parse_args()
    task = clothing(160, 200 if asked.quick else None, 100 if asked.quick else None)
    rows, claims = list[Row](), list[Claim]()
    with tempfile.TemporaryDirectory() as name:
        if "bundles" in asked.parts:
            rows, claims = compared(task, Path(name), quick=asked.quick)
        if "loss" in asked.parts:
            lost = losses(task, Path(name))
            rows, claims = [*rows, *lost], [*claims, *(loss_claim(arm, lost) for arm in ARMS[1:])]
    finish("int8", rows, claims, asked.json)


if __name__ == "__main__":
    main()
