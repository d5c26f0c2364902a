"""PersEPhonEE: what exits cost, and what users gain from exits that learned on the device.

MobileNetV2 on real data, and users whose class popularity is Gaussian over 10, 30, 100 or 200 ImageNet classes, the
head's other rows left out for all arms alike. Exits are solved for on half of the images (the offline stage; the
backbone never changes), then again with each user's own sample of the other half, with labels or with the model's own
answers; in one arm with labels the final head is solved for too, on what the given one reads and answers. A user gains
where leaving early is right more often than the given model. All images go through the backbone once; accuracy is of
all validation images, each weighted by how often the user meets its class. A user's speed-up is the latency of one
session over the mean of the exits' latencies, weighted by the shares that leave there; both are ONNX Runtime's, of one
image, timed in turn. Last, training steps of exits are timed next to those of the whole model.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval, ratio, table
from benchmarks.lib.setup import clothing, first_of_each, opened
from benchmarks.papers.exits.costs import WHOLE, exits_plan, flops_of, leaving_seconds, step_seconds
from benchmarks.papers.exits.users import (
    LABELLED,
    PERSONAL,
    POLICIES,
    Outcome,
    Policy,
    known_task,
    lived,
    store_features,
)
from tuner.arrays import Doubles
from tuner.backends.torch.model.open.load import load
from tuner.machine.control_group import usable_processors
from tuner.runtime.infer.calibration import Costs
from tuner.task import Domain, Subset, Task

TOLERANCE = 0.01
#: Of the claims: numbers of classes, samples a user has, and by how much leaving early must be faster.
CLAIMED, SAMPLES = (10, 30), 500
BOUNDS = {"with labels": (2.2, "3.2×"), PERSONAL: (2.2, "3.2×"), "without labels": (1.5, "2.2×")}


@dataclass(frozen=True, slots=True)
class Faster:
    """What one setting comes to over users, each with half of its 95 % interval where there is one.

    Attributes:
        drop: Accuracy of the whole model less that of leaving early, in the mean; and half of its interval.
        times: By how often leaving early is faster, and the ends of its interval.
        flops: By how often it takes fewer FLOPs.
    """

    drop: tuple[float, float]
    times: tuple[float, float, float]
    flops: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], number: int, seconds: Mapping[str, float], flops: Costs) -> "Faster":
        """Sum up one policy of several users."""
        policies: list[Policy] = [one.policies[number] for one in outcomes]
        drop = interval([one.exits[-1] - own.accuracy for one, own in zip(outcomes, policies, strict=True)])
        shares = np.array([one.shares for one in policies])
        taken = [float(np.dot(one.shares, leaving(one, seconds))) for one in policies]
        middle, half = interval(np.log(seconds[WHOLE] / np.array(taken)))
        spent = shares @ flops.cumulative() / flops.reached[-1]
        times = (math.exp(middle), math.exp(middle - half), math.exp(middle + half))
        return cls(drop, times, float(1 / spent.mean()))


Key = tuple[int, int]  # classes, samples


def leaving(policy: Policy, seconds: Mapping[str, float]) -> Doubles:
    """Return the seconds of leaving at each exit of a user's chain, float64 [exits + 1].

    What the chain of all exits takes more than one session is shared alike by its exits; one that calibration has
    dropped takes nothing.
    """
    exits = len(policy.shares) - 1
    measured = np.array([seconds[f"leaves at {at}"] for at in range(exits + 1)])
    each = (measured[-1] - seconds[WHOLE]) / exits
    dropped = np.cumsum([float(at not in policy.kept) for at in range(exits)])
    result: Doubles = measured - each * np.append(dropped, dropped[-1])
    return result


def cost_rows(names: Sequence[str], seconds: Mapping[str, float], flops: Costs) -> list[Row]:
    """Return what leaving at each exit takes."""
    shares = [1.0, *flops.cumulative() / flops.reached[-1]]
    places = ["", *(f"after {name}" for name in names), "final head"]
    return [
        {"an image": arm, "exit": place, "ms": 1e3 * taken, "times faster": seconds[WHOLE] / taken, "FLOPs": share}
        for (arm, taken), place, share in zip(seconds.items(), places, shares, strict=True)
    ]


def user_rows(
    outcomes: Mapping[Key, Sequence[Mapping[str, Outcome]]], seconds: Mapping[str, float], flops: Costs
) -> list[Row]:
    """Return a line for each number of classes and samples, and each setting."""
    rows: list[Row] = []
    for (classes, samples), users in outcomes.items():
        for arm in users[0]:
            own = [one[arm] for one in users]
            exits = 100 * np.mean([one.exits for one in own], axis=0)
            for number in range(len(own[0].policies)):
                heads, found = POLICIES[arm][number], Faster.of(own, number, seconds, flops)
                share = np.mean([one.policies[number].shares for one in own], axis=0)
                gains = [one[arm].policies[number].accuracy > one["offline"].exits[-1] for one in users]
                rows.append(
                    {
                        "classes": classes, "samples": samples,
                        "different": float(np.mean([one.images for one in own])), "users": len(own),
                        "personalised": arm, "tolerance": heads.tolerance, "certain": heads.confidence,
                        "exits right (%)": " ".join(f"{value:.1f}" for value in exits),
                        "leave (%)": " ".join(f"{100 * value:.0f}" for value in share),
                        "users who gain (%)": 100 * float(np.mean(gains)),
                        "drop (points)": f"{100 * found.drop[0]:.2f} ± {100 * found.drop[1]:.2f}",
                        "times faster": "{:.2f} ({:.2f} to {:.2f})".format(*found.times),
                        "fewer FLOPs": found.flops,
                    }
                )  # fmt: skip
    return rows


def claims_of(
    outcomes: Mapping[Key, Sequence[Mapping[str, Outcome]]], seconds: Mapping[str, float], flops: Costs
) -> list[Claim]:
    """Compare latency at equal accuracy with the bounds, by the unfavourable ends of the intervals over users."""
    claims = []
    for classes in CLAIMED:
        users = outcomes[classes, SAMPLES]
        for arm, (bound, paper) in BOUNDS.items():
            own = [one[arm] for one in users]
            found = Faster.of(own, 0, seconds, flops)
            most, least = found.drop[0] + found.drop[1], found.times[1]
            why = "; ".join(reason for holds, reason in (
                (most <= TOLERANCE or found.drop[0] > TOLERANCE, "so few users leave the drop open"),
                (found.drop[0] <= TOLERANCE, "the drop is larger on unseen images than out of fold"),
                (least >= bound or found.times[0] < bound, "users differ by more than the margin"),
                (found.times[0] >= bound, behind(own)),
            ) if not holds)  # fmt: skip
            said = (
                f"{found.times[0]:.2f}×, at least {least:.2f}× ({found.flops:.2f}× fewer FLOPs), drop "
                f"{100 * found.drop[0]:.2f} ± {100 * found.drop[1]:.2f} points, {len(own)} users"
            )
            claim = f"{classes} classes, {arm}: leaving early is ≥ {bound}× faster, accuracy drop ≤ 1 point"
            claims.append(Claim(claim, f"PersEPhonEE: {paper}", said, not why, why))
    return claims


def behind(own: Sequence[Outcome]) -> str:
    """Return how much more often each exit is right than the whole model, in points."""
    more = 100 * np.mean([np.subtract(one.exits, one.exits[-1]) for one in own], axis=0)[:-1]
    return f"accuracy of the exits less the final head's: {', '.join(f'{value:+.1f}' for value in more)} points"


def step_claims(seconds: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Compare training time with its bounds."""
    claims = []
    for name, bound in (("exits, stored features", 10.0), ("exits, no store", 2.0)):
        times = median(seconds["whole model"]) / median(seconds[name])
        said = ratio(seconds, "whole model", name)
        why = "" if times >= bound else "the heads' own forward and backward pass take what is left"
        claims.append(Claim(f"a training step of {name} is ≥ {bound:g}× faster than of the whole model",
                            "PersEPhonEE: 2× to 22.7×", said, times >= bound, why))  # fmt: skip
    return claims


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done.

    Attributes:
        pixels: Side of an image.
        images: Of each class, at most.
        users: By number of classes.
        samples: Numbers of images that a user has.
        timed: Images whose latency is measured, and how often each.
        steps: That are timed.
    """

    pixels: int
    images: int
    users: dict[int, int]
    samples: tuple[int, ...]
    timed: tuple[int, int]
    steps: int


FULL = Sizes(128, 1000, {10: 30, 30: 30, 100: 30, 200: 30}, (150, 500, 2000), (20, 15), 8)
QUICK = Sizes(64, 4, {10: 3, 30: 3}, (500,), (3, 5), 3)


def main() -> None:
    """Measure, print, write."""
    options = benchmark_parser(__doc__)
    options.add_argument("--features", type=Path, help="file that keeps the images' features from run to run")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, claims = measured(QUICK if asked.quick else FULL, asked.features or Path(folder) / "features.npz")
    finish("persephonee", rows, claims, asked.json)


def measured(size: Sizes, path: Path) -> tuple[list[Row], list[Claim]]:
    """Time the exits, let the users live; return the tables, which are also printed as they come, and the claims."""
    task = fewer(known_task(clothing(size.pixels, 1, 1)), size.images)
    plan = exits_plan(opened(task), LABELLED)
    flops = flops_of(plan)
    if not path.exists():
        store_features(task, load(task), path)
    seconds = leaving_seconds(task, plan, *size.timed)
    names = [plan.model.blocks[one.block - 1].name for one in plan.heads.exits]
    rows = shown(cost_rows(names, seconds, flops))
    outcomes: dict[Key, list[Mapping[str, Outcome]]] = {}
    with ProcessPoolExecutor(usable_processors(), get_context("spawn")) as workers:
        for (classes, users), samples in product(size.users.items(), size.samples):
            runs = [workers.submit(lived, path, classes, samples, seed, flops) for seed in range(users)]
            outcomes[classes, samples] = [run.result() for run in runs]
            rows += shown(user_rows({(classes, samples): outcomes[classes, samples]}, seconds, flops))
    few = Subset(task.local.train, np.arange(min(SAMPLES, len(task.local.train))))
    taken = step_seconds(replace(task, local=Domain(few, task.local.val)), size.steps)
    rows += shown([{"training step": name, "ms": 1e3 * median(found)} for name, found in taken.items()])
    return rows, [*claims_of(outcomes, seconds, flops), *step_claims(taken)]


def shown(rows: list[Row]) -> list[Row]:
    """Print rows, and return them."""
    print(table(rows), flush=True)
    return rows


def fewer(task: Task, most: int) -> Task:
    """Return a task with at most so many images of each class."""
    train, val = (Subset(own, first_of_each(own.labels, most)) for own in (task.local.train, task.local.val))
    return replace(task, local=Domain(train, val))


if __name__ == "__main__":
    main()
