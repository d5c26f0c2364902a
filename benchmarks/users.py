"""Rounds for many users: whom do they make worse, deployed always or let in by the gate, and what is forgotten?

``python -m benchmarks.users [--quick] [--json FILE]``

MobileNetV2 that knows 200 ImageNet classes, exported to be trained again; users whose class popularity is Gaussian
(PersEPhonEE, section 5), with 40 to 400 images of their own. A round is what `tuner watch` runs: `Trainer` on four
fifths of the images and the bundle's replay, by the bundle's recipe; the gate judges on the other fifth and on the
bundle's check records. What really came of it is measured on images that neither has seen, each weighted by how often
the user meets its class. Replay, check records, the users' images and the images to measure on are disjoint.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import Claim, Row, finish
from benchmarks.setup import arguments, clothing, untrained_bundle
from tuner.backends.torch.model.load import load
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.runtime import Trainer
from tuner.runtime.service.gate import GlobalCheck, HoldoutComparison, Rules, judge
from tuner.runtime.service.round import HELD_OUT
from tuner.search.setting import cores
from tuner.task import Domain, Samples, Subset, Task
from tuner.task.info import task_info

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
LEAST, MOST = 40, 400
RECIPE = RecipePlan(epochs=5, batch_size=32, optimiser="adamw", learning_rate=1e-3)
ALPHA = 0.1
REPLAYED, POOL = 10, 16  # images a class: the first for the bundle, the next for the users, the rest to measure on
HARMED, GAINED = 0.2, 0.9
BATCH = 64


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Features of some images, float32 [n, ...], and their labels as rows of the head."""

    features: Floats
    rows: Rows


@dataclass(frozen=True, slots=True)
class Lived:
    """What a round did to one user: accuracy before and after on images like hers, and on all classes alike."""

    images: int
    before: float
    after: float
    known_before: float
    known_after: float
    accepted: bool
    reason: str


def main() -> None:
    """Make the bundle, let the users live, judge."""
    asked = arguments(__doc__ or "")
    pixels, count, per_class = (64, 8, 36) if asked.quick else (128, 40, 1000)
    task, pool, test = divided(clothing(pixels), per_class)
    with tempfile.TemporaryDirectory() as folder:
        bundle = exported(task, Path(folder))
        owned, measured = seen(bundle, pool), seen(bundle, test)
        figures = [lived(bundle, owned, measured, seed) for seed in range(count)]
    rows: list[Row] = [{"user": seed, **asdict(one)} for seed, one in enumerate(figures)]
    finish("users", rows, judged(figures), asked.json)


def divided(given: Task, per_class: int) -> tuple[Task, Samples, Samples]:
    """Return the bundle's task, the users' images, and the images to measure on; `per_class` bounds them all."""
    if given.global_ is None:
        raise ValueError("the clothing task has global data")
    train, val = given.global_.train, given.global_.val
    classes = [np.flatnonzero(train.labels == one)[:per_class] for one in np.unique(train.labels)]
    parts = [
        Subset(train, np.sort(np.concatenate([one[begin:end] for one in classes])))
        for begin, end in ((0, REPLAYED), (REPLAYED, REPLAYED + POOL), (REPLAYED + POOL, None))
    ]
    labels = given.labels[: len(given.head_rows)]
    some = Domain(Subset(parts[0], range(2 * BATCH)), Subset(val, range(2 * BATCH)))
    task = replace(given, labels=labels, local=some, global_=Domain(parts[0], val), local_labels=())
    return replace(task, local_labels=tuple(int(row) for row in np.unique(some.train.labels))), parts[1], parts[2]


def exported(task: Task, folder: Path) -> Path:
    """Write the given model as a bundle that can be trained again: its classifier, with a replay of the global data."""
    loaded = load(task)
    split = loaded.info.num_blocks - 1
    plan = normal_form(
        TrialPlan(
            loaded.info, task_info(task), DataPlan(ALPHA), split, cache=CachePlan("cache", 8), recipe=RECIPE,
            runtime=RuntimePlan("torch", cores()),
        )
    )  # fmt: skip
    return untrained_bundle(task, plan, folder)


def seen(bundle: Path, samples: Samples) -> Known:
    """Run images through the frozen blocks once, for all users."""
    trainer, count = Trainer(bundle), len(samples)
    parts = [
        trainer.features([np.asarray(samples.load(index)) for index in range(begin, min(begin + BATCH, count))])
        for begin in range(0, count, BATCH)
    ]
    return Known(np.concatenate(parts), np.asarray(samples.labels, np.int64))


def lived(bundle: Path, pool: Known, test: Known, seed: int) -> Lived:
    """Let one user have images, train a round on them, judge it, and measure what it did."""
    generator = np.random.default_rng((11, seed))
    trainer = Trainer(bundle, seed=seed)
    labels = trainer.bundle.labels
    rank = generator.permutation(len(labels))
    popularity = np.exp(-((rank - len(labels) / 2) ** 2) / (2 * (len(labels) / 10) ** 2))
    wanted = round(LEAST * (MOST / LEAST) ** generator.random())
    weights = popularity[pool.rows]
    mine = generator.permutation(generator.choice(len(pool.rows), wanted, replace=False, p=weights / weights.sum()))
    held, train = mine[: wanted // HELD_OUT], mine[wanted // HELD_OUT :]
    trainer.add_features(pool.features[train], [labels[row] for row in pool.rows[train]])
    old, *before = _right(trainer, pool, held), *_accuracies(trainer, test, popularity)
    trainer.train()
    new, *after = _right(trainer, pool, held), *_accuracies(trainer, test, popularity)
    checked = trainer.global_accuracy()
    check = None if trainer.before is None or checked is None else GlobalCheck(trainer.before, checked)
    verdict = judge(HoldoutComparison(old, new, np.ones(len(held), bool), labelled=True), check, Rules())
    return Lived(wanted, before[0], after[0], before[1], after[1], verdict.accepted, verdict.reason)


def judged(figures: Sequence[Lived]) -> list[Claim]:
    """Hold the gate against deploying every round."""
    gains = np.array([one.after - one.before for one in figures])
    let_in = np.array([one.accepted for one in figures])
    forgotten = np.array([one.known_after - one.known_before for one in figures])
    harmed, harmed_by_gate = int((gains < 0).sum()), int(((gains < 0) & let_in).sum())
    mean, gated = float(gains.mean()), float((gains * let_in).mean())
    users = f"{len(figures)} users, {int(let_in.sum())} rounds let in"
    told = "none published: the bound is this project's"
    return [
        Claim(
            "the gate makes at most a fifth as many users worse as deploying every round",
            told,
            f"{harmed_by_gate} of {len(figures)}, against {harmed} ({users})",
            "quality",
            harmed_by_gate <= HARMED * harmed,
            "" if harmed else "no round made anyone worse: nothing to prevent",
        ),
        Claim(
            "with the gate, the mean gain is at least 90 % of deploying every round",
            told,
            f"{100 * gated:+.2f} points, against {100 * mean:+.2f}",
            "quality",
            gated >= GAINED * mean,
            _missed(figures),
        ),
        Claim(
            "rounds let in lose at most a point on all classes alike, in the mean",
            "the gate's own rule, there on its check records",
            f"{100 * float(forgotten[let_in].mean()) if let_in.any() else 0:+.2f} points; deployed always "
            f"{100 * float(forgotten.mean()):+.2f}",
            "quality",
            not let_in.any() or float(forgotten[let_in].mean()) >= -0.01,
        ),
    ]


def _missed(figures: Sequence[Lived]) -> str:
    """Say which rules kept out rounds that would have gained."""
    rules = ("a tie", "right on fewer samples", "harm", "global accuracy", "too few")
    out = [one for one in figures if not one.accepted and one.after > one.before]
    counts = {rule: sum(rule in one.reason.partition(":")[0] for one in out) for rule in rules}
    said = ", ".join(f"{rule} {count}" for rule, count in counts.items() if count)
    return f"kept out though better: {said}" if said else ""


def _right(trainer: Trainer, pool: Known, rows: Rows) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = trainer.logits(pool.features[rows]).argmax(axis=1) == pool.rows[rows]
    return found


def _accuracies(trainer: Trainer, test: Known, popularity: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the accuracy as the user meets it, and on all classes alike; every class counts by its own share."""
    right = trainer.logits(test.features).argmax(axis=1) == test.rows
    counts = np.bincount(test.rows, minlength=len(popularity))
    each = np.bincount(test.rows, right, minlength=len(popularity)) / np.maximum(1, counts)
    there = counts > 0
    return float(np.average(each[there], weights=popularity[there])), float(each[there].mean())


if __name__ == "__main__":
    main()
