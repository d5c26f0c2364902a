"""Streams that change at a known point: detection delay, false alarms, accuracy regained after the round.

Handwritten digits. The bundle knows 0 to 7 and has seen one sample each of 8 and 9. From the change on, half of the
stream is 8 and 9 (*new classes*); all of it is written faintly on grey paper (*new looks*); four of five samples are of
those four classes that only one of five was of (*new frequencies*); or nothing changes (*nothing*). The whole service
runs: answers, ring, drift, a round that trains with `Trainer`, gate, swap. Once with labels, once without; without
labels a tail cannot learn, so that only delay and alarms count. Seeds draw stream and test samples, none of which the
bundle was trained on. Shares are judged by the unfavourable end of Wilson's interval, accuracies by that of Student's.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import open_session
from tuner.arrays import Array
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import new_folder
from tuner.commands.bundles.export import write_bundle
from tuner.metrics import wilson
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.core import build_host
from tuner.runtime import Orchestrator, Personaliser, Policy, Ring, World
from tuner.runtime.service.conditions import ANY_TIME
from tuner.runtime.service.round import local_training
from tuner.runtime.service.watch.monitor import Watch
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Subset, Task, stratified_holdout
from tuner.task.builtin import digits
from tuner.task.info import task_info

LATER = 8  # and 9: classes that appear later
BEFORE, AFTER, TEST = 150, 200, 100
CLASSES, LOOKS, FREQUENCIES, NOTHING = KINDS = ("new classes", "new looks", "new frequencies", "nothing")
PAPER, FAINT = np.float32(0.3), np.float32(0.5)  # of pixels in [0, 1]: brightness of the paper, contrast of the ink
WITHHELD = 0.5  # of the samples that the digits' model is trained on otherwise
MOST_ALARMED, LEAST_NOTICED, LOST = 0.1, 0.8, 0.01
EVERY = 100_000  # a round by number of samples never comes: drift alone asks for it
RECIPE = RecipePlan(epochs=8, batch_size=16, optimiser="adamw", learning_rate=3e-3)
#: Pixels, float32 [1, 8, 8], and their label.
Sample = tuple[Array, str]


def made() -> tuple[Task, list[Sample], list[Sample]]:
    """Return the bundle's task, and samples of known and of later classes that neither it nor its model trains on."""
    task = digits()
    others = task.global_
    if others is None or others.test is None or task.local.test is None:
        raise ValueError("the digits have global data and test samples")
    train = task.local.train
    first = [int(np.flatnonzero(train.labels == label)[0]) for label in range(LATER, 10)]
    chosen = np.sort(np.concatenate([np.flatnonzero(train.labels < LATER), first]))
    kept, withheld = stratified_holdout(others.train.labels, WITHHELD)
    free = [Subset(train, np.setdiff1d(np.arange(len(train)), chosen)), Subset(others.train, withheld)]
    free += [Subset(part, np.arange(len(part))) for part in (task.local.val, task.local.test, others.test)]
    samples = [(part.load(row), str(label)) for part in free for row, label in enumerate(part.labels)]
    task = replace(
        task,
        local=replace(task.local, train=Subset(train, chosen)),
        global_=replace(others, train=Subset(others.train, kept)),  # the gate checks on its validation samples
    )
    known, later = ([one for one in samples if (int(one[1]) >= LATER) is new] for new in (False, True))
    return task, known, later


def stream(
    kind: str, known: Sequence[Sample], later: Sequence[Sample], random: np.random.Generator
) -> tuple[list[Sample], list[Sample]]:
    """Return samples in a random order, from before the change and from after it.

    Args:
        kind: What changes.
        known: Samples of the classes that the bundle knows.
        later: Samples of the others.
        random: Draws them.
    """
    known, later = ([some[row] for row in random.permutation(len(some))] for some in (known, later))
    count = AFTER + TEST
    if kind == CLASSES:
        then = [*known[BEFORE : BEFORE + count // 2], *later[: count // 2]]
    elif kind == FREQUENCIES:
        rare = {str(label) for label in random.permutation(LATER)[: LATER // 2]}
        often, seldom = ([one for one in known if (one[1] in rare) is wanted] for wanted in (False, True))
        few = BEFORE // 5
        now = [*often[: BEFORE - few], *seldom[:few]]
        then = [*often[BEFORE - few :][: count // 5], *seldom[few:][: count - count // 5]]
        known = [*(now[row] for row in random.permutation(BEFORE)), *then]
    else:
        then = known[BEFORE : BEFORE + count]
    if len(then) < count:
        raise ValueError(f"{count} samples are needed after the change, but there are {len(then)}")
    if kind == LOOKS:
        then = [(PAPER + FAINT * pixels, label) for pixels, label in then]
    return known[:BEFORE], [then[row] for row in random.permutation(count)]


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


def lived(bundle: Path, kind: str, free: tuple[list[Sample], list[Sample]], seed: int, *, labelled: bool) -> Row:
    """Live through one stream, in a folder of the bundle's; `free` are samples of known and of later classes."""
    first, then = stream(kind, *free, np.random.default_rng((KINDS.index(kind), seed)))
    inputs, truth = np.stack([pixels for pixels, _ in then[AFTER:]]), [label for _, label in then[AFTER:]]

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
        for place, (pixels, label) in enumerate([*first, *then[:AFTER]]):
            service.infer(pixels, label if labelled else None)
            if service.state.asked is not None and not asked:
                alarms.append(place)
            service.tend(wait=True)
            asked = service.state.asked is not None
        rounds = service.state.rounds
    late = [place - BEFORE for place in alarms if place >= BEFORE]
    return {
        "change": kind,
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
    options = benchmark_parser(__doc__)
    options.add_argument("--seeds", type=int, default=20, help="streams of each kind, with and without labels")
    asked = options.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task, *free = made()
        bundle = exported(task, folder)
        for number, kind in enumerate(KINDS):
            for labelled in (True, False):
                for seed in range(2 if asked.quick else asked.seeds):
                    own = folder / f"{number}-{labelled}-{seed}"
                    shutil.copytree(bundle, own / "bundle")
                    rows.append(lived(own / "bundle", kind, (free[0], free[1]), seed, labelled=labelled))
                    print(rows[-1], file=sys.stderr, flush=True)
                    shutil.rmtree(own)
    finish("drift", rows, claims(rows), asked.json)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return what the streams show."""
    found = [alarmed(rows, labels) for labels in ("yes", "no")]
    for kind in KINDS:
        for labels in ("yes", "no"):
            own = [row for row in rows if (row["change"], row["labels"]) == (kind, labels)]
            harms = kind in {CLASSES, LOOKS}
            found.append(noticed(own, kind, labels) if harms else quiet(own, kind, labels))
            if labels == "yes" and (harms or any(row["rounds"] for row in own)):  # without a round nothing can be lost
                found.append(regained(own, kind))
    return found


def alarmed(rows: Sequence[Row], labels: str) -> Claim:
    """Say how often something was noticed before anything changed."""
    own = [bool(row["false alarms"]) for row in rows if row["labels"] == labels]
    high = wilson(sum(own) / len(own), len(own))[1]
    return Claim(
        f"labels {labels}: at most one stream in ten has a false alarm in its {BEFORE} samples before the change",
        "none published: PersEPhonEE gives no figure",
        f"{sum(own)} of {len(own)}, at most {100 * high:.1f} % (Wilson)",
        high <= MOST_ALARMED,
    )


def noticed(rows: Sequence[Row], kind: str, labels: str) -> Claim:
    """Say how often, and how soon, a change was noticed."""
    delay, count = median(int(str(row["delay"])) for row in rows), sum(bool(row["noticed"]) for row in rows)
    low = wilson(count / len(rows), len(rows))[0]
    return Claim(
        f"{kind}, labels {labels}: the change is noticed within {AFTER} samples in four of five streams",
        "none published: PersEPhonEE gives no figure",
        f"median delay {delay:g} samples, noticed in {count} of {len(rows)}, at least {100 * low:.0f} % (Wilson)",
        low >= LEAST_NOTICED,
    )


def quiet(rows: Sequence[Row], kind: str, labels: str) -> Claim:
    """Say how often a round was asked for where the model in use is still right."""
    count = sum(bool(row["noticed"]) for row in rows)
    high = wilson(count / len(rows), len(rows))[1]
    accuracy = np.mean([float(str(row["accuracy before"])) for row in rows])
    return Claim(
        f"{kind}, labels {labels}: at most one stream in five has an alarm in the {AFTER} samples after the change",
        "none published: PersEPhonEE gives no figure",
        f"{count} of {len(rows)}, at most {100 * high:.0f} % (Wilson); {100 * accuracy:.1f} % are right",
        high <= 1 - LEAST_NOTICED,
    )


def regained(rows: Sequence[Row], kind: str) -> Claim:
    """Say what rounds did to the accuracy on the changed stream."""
    accuracy = {name: np.array([float(str(row[name])) for row in rows]) for name in ("accuracy before", "after")}
    gain, half = interval(accuracy["after"] - accuracy["accuracy before"])
    changes = kind in {CLASSES, LOOKS}
    rule = "regain accuracy" if changes else f"lose at most {100 * LOST:.0f} point"
    return Claim(
        f"{kind}, labels yes: rounds {rule} on the stream after the change",
        "none published",
        f"{100 * gain:+.1f} ± {100 * half:.1f} points (95 %), from {100 * accuracy['accuracy before'].mean():.1f} %; "
        f"{sum(int(str(row['accepted'])) for row in rows)} of {sum(int(str(row['rounds'])) for row in rows)} rounds "
        "accepted",
        gain - half > (0 if changes else -LOST),
    )


if __name__ == "__main__":
    main()
