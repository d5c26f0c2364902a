"""A stream whose classes change at a known point: detection delay, false alarms, accuracy regained after the round.

``python -m benchmarks.drift [--quick] [--json FILE]``

Handwritten digits. The bundle knows 0 to 7 and has seen one sample each of 8 and 9; from the change on, half of the
stream is 8 and 9. The whole service runs: answers, ring, drift, a round that trains with `Trainer`, gate, swap. Once
with labels, once without; without labels a tail cannot learn, so that only delay and alarms count. Seeds draw stream
and test samples, none of which the bundle was trained on.
"""

import shutil
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.report import Claim, Row, finish, interval
from benchmarks.setup import arguments, open_session
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import new_folder
from tuner.commands.export import write_bundle
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.core import build_host
from tuner.runtime import Orchestrator, Personaliser, Policy, Ring, World
from tuner.runtime.service.conditions import ANY_TIME
from tuner.runtime.service.local_training import local_training
from tuner.runtime.service.monitor import Watch
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Samples, Subset, Task
from tuner.task.digits import digits
from tuner.task.info import task_info

LATER = 8  # and 9: classes that appear later
BEFORE, AFTER, TEST = 150, 200, 100
EVERY = 100_000  # a round by number of samples never comes: drift alone asks for it
RECIPE = RecipePlan(epochs=8, batch_size=16, optimiser="adamw", learning_rate=3e-3)


def made() -> tuple[Task, list[tuple[Samples, int]], list[tuple[Samples, int]]]:
    """Return the bundle's task, and the samples of known and of later classes that it does not train on."""
    task = digits()
    others = task.global_
    if others is None or others.test is None or task.local.test is None:
        raise ValueError("the digits have global data and test samples")
    train = task.local.train
    first = [int(np.flatnonzero(train.labels == label)[0]) for label in range(LATER, 10)]
    chosen = np.sort(np.concatenate([np.flatnonzero(train.labels < LATER), first]))
    rest = np.setdiff1d(np.arange(len(train)), chosen)
    free = [*((train, int(row)) for row in rest)]
    for samples in (task.local.val, task.local.test, others.test):  # the gate checks on the others' validation samples
        free += [(samples, row) for row in range(len(samples))]
    known = [one for one in free if one[0].labels[one[1]] < LATER]
    later = [one for one in free if one[0].labels[one[1]] >= LATER]
    return replace(task, local=replace(task.local, train=Subset(train, chosen))), known, later


def exported(task: Task, folder: Path) -> Path:
    """Train the tail, and write a bundle that trains again."""
    backend, weights, out = TorchBackend(), folder / "weights.safetensors", folder / "bundle"
    plan = normal_form(
        TrialPlan(
            open_session(backend, task).model,
            task_info(task),
            DataPlan(0.3),
            1,
            cache=CachePlan("cache", 8),
            recipe=RECIPE,
            runtime=RuntimePlan("torch", 1),
        )
    )
    open_session(backend, task).train(Trial(plan, 1, Store(folder / "store"), weights))
    with new_folder(out) as part, open_remote(build_host(), task, ["torch"]) as sessions:
        write_bundle(sessions["torch"], plan, weights, part, {"parent": None}, trainable=True)
    return out


def lived(
    bundle: Path, known: list[tuple[Samples, int]], later: list[tuple[Samples, int]], seed: int, *, labelled: bool
) -> Row:
    """Live through one stream, in a folder of the bundle's."""
    generator = np.random.default_rng(seed)
    known, later = ([some[row] for row in generator.permutation(len(some))] for some in (known, later))
    half = (AFTER + TEST) // 2
    mixed = [*known[BEFORE : BEFORE + half], *later[:half]]
    mixed = [mixed[row] for row in generator.permutation(len(mixed))]
    if len(mixed) < AFTER + TEST:
        raise ValueError(f"{AFTER + TEST} samples are wanted after the change, but there are {len(mixed)}")
    stream, test = [*known[:BEFORE], *mixed[:AFTER]], mixed[AFTER:]
    inputs, truth = np.stack([samples.load(row) for samples, row in test]), [str(one.labels[row]) for one, row in test]

    def accuracy() -> float:
        answers = Personaliser(bundle, threads=1).predict_batch(inputs)
        return float(np.mean([one.label == label for one, label in zip(answers, truth, strict=True)]))

    before = accuracy()
    policy = Policy(watch=Watch(enough=EVERY), conditions=ANY_TIME)
    alarms: list[int] = []
    asked = False
    ticks = count()
    world = World(clock=lambda: float(next(ticks)), threads=1)  # no waiting for seconds to pass
    with Orchestrator(bundle, Ring(bundle.with_name("ring")), local_training(bundle, 1), policy, world) as service:
        for place, (samples, row) in enumerate(stream):
            service.infer(samples.load(row), str(samples.labels[row]) if labelled else None)
            if service.state.asked is not None and not asked:
                alarms.append(place)
            service.tend(wait=True)
            asked = service.state.asked is not None
        rounds = service.state.rounds
    late = [place - BEFORE for place in alarms if place >= BEFORE]
    return {
        "labels": "yes" if labelled else "no",
        "seed": seed,
        "false alarms": sum(place < BEFORE for place in alarms),
        "delay": late[0] if late else AFTER,
        "noticed": bool(late),
        "accuracy before": before,
        "after": accuracy(),
        "rounds": len(rounds),
        "accepted": sum(one.accepted for one in rounds),
    }


def main() -> None:
    """Live through the streams of all seeds."""
    asked = arguments(__doc__ or "")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task, known, later = made()
        bundle = exported(task, folder)
        for labelled in (True, False):
            for seed in range(3 if asked.quick else 20):
                own = folder / f"{seed}-{labelled}"
                shutil.copytree(bundle, own / "bundle")
                rows.append(lived(own / "bundle", known, later, seed, labelled=labelled))
    claims = [noticed(rows, labels) for labels in ("yes", "no")]
    gain, half = interval(
        [float(str(row["after"])) - float(str(row["accuracy before"])) for row in rows if row["labels"] == "yes"]
    )
    claims.append(
        Claim(
            "with labels, the round regains accuracy on the changed stream",
            "none published",
            f"{100 * gain:+.1f} ± {100 * half:.1f} points (95 %)",
            "quality",
            gain - half > 0,
        )
    )
    finish("drift", rows, claims, asked.json)


def noticed(rows: list[Row], labels: str) -> Claim:
    """Say how soon the change was noticed, and how often one that was none."""
    own = [row for row in rows if row["labels"] == labels]
    delay = median(int(str(row["delay"])) for row in own)
    alarms = sum(int(str(row["false alarms"])) for row in own)
    return Claim(
        f"labels {labels}: the change is noticed in every stream, with at most one false alarm in ten streams",
        "none published: PersEPhonEE gives no figure",
        f"median delay {delay:g} samples, noticed in {sum(bool(row['noticed']) for row in own)} of {len(own)}; "
        f"{alarms} false alarms in {len(own)} × {BEFORE} samples",
        "quality",
        all(row["noticed"] for row in own) and alarms <= len(own) / 10,
    )


if __name__ == "__main__":
    main()
