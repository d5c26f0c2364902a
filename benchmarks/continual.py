"""Two stages: what a network learns of new data and forgets of old, at a fixed small size, full size, and growing.

``python -m benchmarks.continual [--quick] [--json FILE]``

The tasks are those of ``examples/continual``. Class-incremental: LeNet-2D that was taught the digits 0 to 4 learns 5 to
9. Domain-incremental: LeNet-1D that was taught one person's gestures learns another's, a pair of people a seed. Stage 2
mixes in a tenth of each old class. The small network keeps the strongest tenth of the full one's channels; RIC starts
from just that, and may grow. Scored on held-out samples of both stages, before (the full network after stage 1) and
after.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.growth import of, trained
from benchmarks.report import Claim, Row, finish
from benchmarks.setup import arguments, open_session
from tuner.backends.base import silent
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.parts import RecipePlan
from tuner.results.records import Outcome
from tuner.store.store import Store
from tuner.task import Task, load_task
from tuner_growth.edit import Edit

EXAMPLES = Path(__file__).parent.parent / "examples" / "continual"
#: Old and new person, a pair a seed.
PAIRS = (("female0", "male0"), ("male1", "female1"), ("male2", "male3"))
OLD_SHARE = 0.1
#: Chosen on other pairs of people.
RECIPE = RecipePlan(epochs=30, batch_size=50, optimiser="adam", learning_rate=3e-3, schedule="cosine")
RIC = Edit(start=0.1, cap=1.0, controller="ric", horizon=4, penalty=0.4, adapter="dspa")
FIXED = Edit(start=0.1, controller="fixed")
ARMS: Mapping[str, Edit | None] = {"fixed, pruned": FIXED, "full size": None, "RIC": RIC}
Found = Mapping[str, Sequence[Outcome]]


def main() -> None:
    """Measure, print, write."""
    asked = arguments(__doc__ or "")
    os.environ.setdefault("TUNER_DATA", str(EXAMPLES.parents[2] / "shared" / "data"))
    seeds = 1 if asked.quick else len(PAIRS)
    digits = load_task(f"{EXAMPLES / 'new_digits.py'}:task", {})
    scenarios = {"new digits": [digits] * seeds, "new person": [another(*pair) for pair in PAIRS[:seeds]]}
    rows: list[Row] = []
    claims = []
    for name, tasks in scenarios.items():
        found: dict[str, list[Outcome]] = {arm: [] for arm in ARMS}
        for seed, task in enumerate(tasks):
            for arm, edit in ARMS.items():
                with tempfile.TemporaryDirectory() as folder:
                    one = trained(task, edit, RECIPE, seed, Path(folder), mode="tail", alpha=OLD_SHARE)
                found[arm].append(one)
        rows += [before(name, tasks), *(row(name, arm, outcomes) for arm, outcomes in found.items())]
        claims.append(recovered(name, found))
    finish("continual", rows, claims, asked.json)


def before(name: str, tasks: Sequence[Task]) -> Row:
    """Score the networks after stage 1."""
    values = []
    for task in tasks:
        backend = TorchBackend()
        with tempfile.TemporaryDirectory() as folder:
            values.append(open_session(backend, task).untouched(Store(Path(folder)), 1, silent).values)
    return {
        "scenario": name,
        "arm": "before stage 2",
        "old data": f"{100 * np.mean([one['global_accuracy'] for one in values]):.2f} %",
        "new data": f"{100 * np.mean([one['local_accuracy'] for one in values]):.2f} %",
    }


def row(name: str, arm: str, outcomes: Sequence[Outcome]) -> Row:
    """Return an arm's figures after stage 2, means over seeds."""
    return {
        "scenario": name,
        "arm": arm,
        "old data": f"{100 * of(outcomes, 'global_accuracy'):.2f} %",
        "new data": f"{100 * of(outcomes, 'local_accuracy'):.2f} %",
        "both": f"{100 * np.mean([both(one) for one in outcomes]):.2f} %",
        "MFLOPs": of(outcomes, "flops") / 1e6,
        "parameters": round(of(outcomes, "parameters")),
        "train s": of(outcomes, "train_seconds"),
    }


def both(outcome: Outcome) -> float:
    """Return the mean of old and new accuracy."""
    return (outcome.values["global_accuracy"] + outcome.values["local_accuracy"]) / 2


def recovered(name: str, found: Found) -> Claim:
    """Say how much of what a fixed small network loses against full size growth gives back, seed by seed."""
    gains = [both(ric) - both(fixed) for ric, fixed in zip(found["RIC"], found["fixed, pruned"], strict=True)]
    lost = [both(full) - both(fixed) for full, fixed in zip(found["full size"], found["fixed, pruned"], strict=True)]
    return Claim(
        f"{name}: after stage 2, growth is better than the fixed pruned network on the mean of old and new data",
        "this benchmark's own bound; MDLdroidLite, text: the fixed network loses 14.72 (domain) and 10.98 points "
        "(classes), growth recovers",
        f"{100 * np.mean(gains):+.2f} points (least {100 * min(gains):+.2f}) of {100 * np.mean(lost):.2f} lost, "
        f"with {of(found['RIC'], 'flops') / of(found['full size'], 'flops'):.2f} of the full FLOPs",
        "quality",
        min(gains) > 0,
    )


def another(old: str, new: str) -> Task:
    """Return the example of two people for others of them."""
    text = (EXAMPLES / "new_person.toml").read_text(encoding="utf-8")
    text = text.replace("eval/female0", "eval/OLD").replace("eval/male0", f"eval/{new}").replace("OLD", old)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(text.replace("../emg", str(EXAMPLES.parent / "emg")), encoding="utf-8")
        return load_task(str(path), {})


if __name__ == "__main__":
    main()
