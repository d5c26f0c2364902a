"""Rounds for many users: what of the gain does the gate keep, whom does it harm, and what is forgotten?

MobileNetV2 that knows 200 ImageNet classes; users whose class popularity is Gaussian (PersEPhonEE, section 5), with 40
to 400 images of their own. Every image goes through the frozen blocks once; the bundle is the classifier on stored
features, so that hundreds of users are simulated. A round is what `tuner watch` runs: `run_round` with the bundle's
own trainer, replay and check samples. What really came of it is measured on images that no model has seen, each
weighted by how often the user meets its class, next to deploying the model of every round. Replay, check samples, the
users' images and the images to measure on are disjoint.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import clothing, first_of_each, known_of, untrained_bundle
from tuner.backends.torch.model.open.load import load
from tuner.bundle.format import Bundle
from tuner.machine.control_group import usable_processors
from tuner.metrics import wilson
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.runtime import Personaliser, Trainer
from tuner.runtime.train.gate import Rules
from tuner.task import Domain, InputSpec, ModelSpec, Samples, Subset, Task
from tuner.task.data.samples import ArraySamples, content_id
from tuner.task.info import task_info
from tuner_watch.ring import RingSample
from tuner_watch.round import local_training, run_round

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
LEAST, MOST = 40, 400
RECIPE = RecipePlan(epochs=5, batch_size=64, optimiser="adamw", learning_rate=1e-3)
REPLAYED, POOL = 10, 16  # images a class: the first for the bundle, the next for the users, the rest to measure on
CHECKED = 500  # validation images of the bundle; the others are to measure on, too
HARMED, GAINED, FORGOTTEN = 0.02, 0.9, 0.01
BATCH = 64


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Pooled features of some images, float32 [n, 1280], and their labels as rows of the head."""

    features: Floats
    rows: Rows

    def select(self, indices: Rows) -> "Known":
        """Return some of them."""
        return Known(self.features[indices], self.rows[indices])


@dataclass(frozen=True, slots=True)
class Lived:
    """What a round did to one user.

    Attributes:
        images: Number of her images.
        before, after: Accuracy on images like hers, of the exported model and of the round's.
        known_before, known_after: The same on all classes alike.
        accepted: Whether the gate let the round's model in.
        seconds: Time of the round, on one thread.
        reason: The gate's reason.
    """

    images: int
    before: float
    after: float
    known_before: float
    known_after: float
    accepted: bool
    seconds: float
    reason: str


def main() -> None:
    """Make the bundle, let the users live, judge."""
    options = benchmark_parser(__doc__)
    options.add_argument("--features", type=Path, help="file that keeps the images' features from run to run")
    asked = options.parse_args()
    pixels, count, per_class = (64, 8, 36) if asked.quick else (128, 400, 1000)
    with tempfile.TemporaryDirectory() as folder:
        stored = asked.features or Path(folder) / "features.npz"
        if not stored.exists():
            store_features(clothing(pixels), stored, per_class)
        bundle = exported(stored, Path(folder))
        with ProcessPoolExecutor(usable_processors(), get_context("spawn")) as workers:
            figures = list(workers.map(lived, [bundle] * count, [stored] * count, range(count)))
    rows: list[Row] = [{"user": seed, **asdict(one)} for seed, one in enumerate(figures)]
    finish("users", rows, judged(figures), asked.json)


def store_features(given: Task, path: Path, per_class: int) -> None:
    """Run the global images through the frozen blocks once; at most `per_class` training images of each class."""
    model, known, photos = load(given).model.eval(), len(given.head_rows), known_of(given)
    val = np.random.default_rng(0).permutation(len(photos.val))
    parts = {
        "train": (photos.train, first_of_each(photos.train.labels, per_class)),
        "val": (photos.val, val[: 4 * CHECKED]),
    }
    arrays: dict[str, npt.NDArray[np.generic]] = {"labels": np.array(given.labels[:known])}
    state = model.state_dict()
    arrays |= {name: state[f"classifier.1.{name}"].numpy()[:known] for name in ("weight", "bias")}
    for name, (samples, indices) in parts.items():
        arrays[name], arrays[f"{name}_rows"] = pooled(model, given, samples, indices), samples.labels[indices]
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own options


def pooled(model: nn.Module, task: Task, samples: Samples, indices: Rows) -> Floats:
    """Return what the classifier of a MobileNetV2 reads, float32 [n, 1280]."""
    parts: list[Floats] = []
    with torch.no_grad():
        for begin in range(0, len(indices), BATCH):
            pixels = torch.from_numpy(task.batch(samples, indices[begin : begin + BATCH]))
            parts.append(model.features(pixels).mean((2, 3)).numpy())  # type: ignore[operator]  # modules are untyped
    return np.concatenate(parts)


@cache
def divided(path: Path) -> dict[str, Known]:
    """Return the stored features by what they are for: replay, pool of the users, check and test."""
    stored = np.load(path)
    train, val = (Known(stored[name], stored[f"{name}_rows"]) for name in ("train", "val"))
    classes = [np.flatnonzero(train.rows == one) for one in np.unique(train.rows)]
    replay, pool, rest = (
        train.select(np.concatenate([one[begin:end] for one in classes]))
        for begin, end in ((0, REPLAYED), (REPLAYED, REPLAYED + POOL), (REPLAYED + POOL, None))
    )
    unchecked = val.select(np.arange(CHECKED, len(val.rows)))
    features = np.concatenate([rest.features, unchecked.features])
    test = Known(features, np.concatenate([rest.rows, unchecked.rows]))
    return {"replay": replay, "pool": pool, "check": val.select(np.arange(CHECKED)), "test": test}


def head(inputs: int, outputs: int) -> nn.Module:
    """Build the classifier alone: the task's model."""
    return nn.Sequential(nn.Linear(inputs, outputs))


def exported(path: Path, folder: Path) -> Path:
    """Write the given classifier as a bundle that can be trained again, with a replay of the global data."""
    stored, parts = np.load(path), divided(path)
    weights, spec = folder / "given.pth", InputSpec(kind="arrays")
    torch.save({f"0.{name}": torch.from_numpy(stored[name]) for name in ("weight", "bias")}, weights)
    samples = {name: ArraySamples(known.features, known.rows, spec, name) for name, known in parts.items()}
    some = Subset(samples["replay"], np.arange(0, len(samples["replay"]), REPLAYED))
    outputs, inputs = stored["weight"].shape
    labels = tuple(map(str, stored["labels"]))
    task = Task(
        name="users",
        model=ModelSpec(
            "benchmarks.models.users:head", (("inputs", int(inputs)), ("outputs", int(outputs))), str(weights)
        ),
        input=spec,
        loss="single-label",
        local=Domain(some, samples["check"]),
        global_=Domain(samples["replay"], samples["check"]),
        labels=labels,
        head_rows=tuple(range(len(labels))),
        local_labels=tuple(range(len(labels))),
    )
    plan = TrialPlan(
        load(task).info, task_info(task), DataPlan(1.0), 0, cache=CachePlan(), recipe=RECIPE,
        runtime=RuntimePlan("torch", 1),
    )  # fmt: skip
    return untrained_bundle(task, normal_form(plan), folder)


def lived(bundle: Path, path: Path, seed: int) -> Lived:
    """Let one user have images, run a round on them, and measure what deploying its model does."""
    generator, parts = np.random.default_rng((11, seed)), divided(path)
    pool, test = parts["pool"], parts["test"]
    with tempfile.TemporaryDirectory() as folder:
        own = shutil.copytree(bundle, Path(folder) / "bundle")
        given = Trainer(own, threads=1)
        labels = given.bundle.labels
        rank = generator.permutation(len(labels))
        popularity = np.exp(-((rank - len(labels) / 2) ** 2) / (2 * (len(labels) / 10) ** 2))
        wanted = round(LEAST * (MOST / LEAST) ** generator.random())
        weights = popularity[pool.rows]
        mine = pool.select(generator.choice(len(pool.rows), wanted, replace=False, p=weights / weights.sum()))
        samples = [
            RingSample(content_id(features.tobytes()), labels[row], features)
            for features, row in zip(mine.features, mine.rows, strict=True)
        ]
        training = local_training(own, threads=1)
        if training is None:
            raise ValueError("the bundle can be trained")
        began = time.perf_counter()
        result = run_round(Personaliser(own, 1), samples, training, Rules())
        took = time.perf_counter() - began
        made = result.made or deployed(given.bundle, samples, Path(folder))
        before, after = accuracies(given, test, popularity), accuracies(Trainer(made, 1), test, popularity)
    return Lived(wanted, before[0], after[0], before[1], after[1], result.verdict.accepted, took, result.verdict.reason)


def deployed(bundle: Bundle, samples: Sequence[RingSample], folder: Path) -> Path:
    """Return the model that the round would have put in place without a gate."""
    trainer = Trainer(bundle, threads=1)
    trainer.add([sample.sample for sample in samples], [str(sample.label) for sample in samples])
    trainer.train()
    return trainer.save(folder / "deployed")


def accuracies(trainer: Trainer, test: Known, popularity: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the accuracy as the user meets it, and on all classes alike; every class counts by its own share."""
    right = trainer.logits(test.features).argmax(axis=1) == test.rows
    counts = np.bincount(test.rows, minlength=len(popularity))
    each = np.bincount(test.rows, right, minlength=len(popularity)) / np.maximum(1, counts)
    there = counts > 0
    return float(np.average(each[there], weights=popularity[there])), float(each[there].mean())


def judged(figures: Sequence[Lived]) -> list[Claim]:
    """Compare the gate with deploying every round, each claim by the unfavourable end of its 95 % interval."""
    gains = np.array([one.after - one.before for one in figures])
    accepted = np.array([one.accepted for one in figures])
    forgotten = np.array([one.known_after - one.known_before for one in figures])
    seconds = float(np.median([one.seconds for one in figures]))
    users = f"{len(figures)} users, {int(accepted.sum())} rounds accepted, {seconds:.1f} s a round in the median"
    harmed = int(((gains < 0) & accepted).sum())
    most_harmed = wilson(harmed / len(figures), len(figures))[1]
    excess, half = interval(gains * accepted - GAINED * gains)
    kept, lost = float((gains * accepted).mean() / gains.mean()), interval(forgotten[accepted])
    own = "none published: the bound is this project's"
    return [
        Claim("at most 2 % of the users are worse off with the gate, at the upper end of the interval", own,
              f"{harmed} of {len(figures)}, at most {100 * most_harmed:.1f} % (Wilson); deploying every round "
              f"{int((gains < 0).sum())} ({users})", most_harmed <= HARMED),
        Claim(
            "with the gate, the mean gain is at least 90 % of deploying every round, at the lower end of the interval",
            own,
            f"{100 * float((gains * accepted).mean()):+.2f} points, against {100 * float(gains.mean()):+.2f}: "
            f"{100 * kept:.1f} %; above 90 % by {100 * excess:+.2f} ± {100 * half:.2f} points",
            excess - half >= 0,
            _missed(figures),
        ),
        Claim(
            "accepted rounds lose at most a point on all classes alike, in the mean, at the lower end of the interval",
            "the gate's own rule, there on its check samples",
            f"{100 * lost[0]:+.2f} ± {100 * lost[1]:.2f} points; deployed always {100 * float(forgotten.mean()):+.2f}",
            lost[0] - lost[1] >= -FORGOTTEN,
        ),
    ]  # fmt: skip


def _missed(figures: Sequence[Lived]) -> str:
    """Say which rules kept out rounds that would have gained."""
    rules = ("a tie", "right on fewer samples", "harm", "global accuracy", "too few")
    out = [one for one in figures if not one.accepted and one.after > one.before]
    counts = {rule: sum(rule in one.reason.partition(":")[0] for one in out) for rule in rules}
    said = ", ".join(f"{rule} {count}" for rule, count in counts.items() if count)
    return f"kept out though better: {said}" if said else ""


if __name__ == "__main__":
    main()
