"""What accuracy frozen blocks in int8 cost on the clothing photos, paired by photos, with the bound of 95 % confidence.

The last block of MobileNetV2 trains for 8 epochs on stored features. All local photos judge, so that the bound is
narrow: in each of `FOLDS` folds the plan trains, and the blocks are quantised, without the fold's photos, and answers
to these are paired with those in float32. The arm ``quantised`` has the tail that was trained in float32, as ``tuner
export --int8`` does; the arm ``trained`` trained its tail on what the quantised blocks compute, as trials with
``runtime.precision = "int8"`` do. Global photos are answered by the tails of all folds: what counts is the share of the
tails that have a photo right, as one tail loses up to 0.9 points more than another.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.torch import load_file

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import Joined, clothing, plan_for
from tuner.backends.base import Trial, silent
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import validation_selections
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.inputs import stored_inputs
from tuner.backends.torch.trial.scoring import logits
from tuner.bundle.format import WEIGHTS
from tuner.plan.parts import RecipePlan, RuntimePlan
from tuner.plugin.core import build_host
from tuner.processors import usable_processors
from tuner.runtime.infer.mcnemar import most_drop
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Domain, Subset, Task
from tuner.task.partition import fold_numbers

FOLDS, MOST_POINTS, CONFIDENCE = 4, 1.0, 0.95
IN_INT8 = RuntimePlan(threads=usable_processors(), precision="int8", int8_loss=1.0)
ARMS = ("float32", "quantised", "trained")
#: Whether each answer is right, by arm and domain.
Right = Mapping[str, Mapping[str, npt.NDArray[np.bool_]]]


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
                "loss of": arm,
                "domain": domain,
                "photos": len(own),
                "float32": float(whole.mean()),
                "int8": float(own.mean()),
                "lost": float(np.maximum(whole - own, 0).sum()),
                "won": float(np.maximum(own - whole, 0).sum()),
                "points": 100 * float(whole.mean() - own.mean()),
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
    options = benchmark_parser(__doc__).parse_args()
    task = clothing(160, 200 if options.quick else None, 100 if options.quick else None)
    with tempfile.TemporaryDirectory() as name:
        rows = losses(task, Path(name))
    finish("int8_loss", rows, [loss_claim(arm, rows) for arm in ARMS[1:]], options.json)


if __name__ == "__main__":
    main()
