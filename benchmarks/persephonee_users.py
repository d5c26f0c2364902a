"""The second part of `benchmarks.persephonee`: users, their exits, and what these cost and give."""

from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from benchmarks.persephonee_costs import ort_costs, step_seconds
from benchmarks.persephonee_exits import OFFLINE, personalised, planned, train
from benchmarks.persephonee_tables import accuracy_rows, claims_of, threshold_rows
from benchmarks.report import Claim, Row
from benchmarks.setup import Held, clothing, opened
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.features.fill import fill
from tuner.task import Domain, Samples, Subset, Task
from tuner_exits import placed

CHANNELS = 128


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much the second part does.

    Attributes:
        pixels: Side of an image.
        exits: Side exits.
        per_class: Images of each class for the offline stage; the others, up to as many, are the users'.
        users: How many.
        images: A user's, to train and calibrate on.
        scored: A user's validation images.
        epochs: Of the offline stage.
        rounds: Epochs of a user's round.
        steps: That are timed.
    """

    pixels: int
    exits: int
    per_class: int
    users: int
    images: int
    scored: int
    epochs: int
    rounds: int
    steps: int


def users(size: Sizes) -> tuple[list[Row], list[Claim]]:
    """Train exits offline, then for every user; return the tables and the claims."""
    given = clothing(size.pixels, 1, 1)
    if given.global_ is None:
        raise ValueError("the clothing task has global data")
    known = len(given.head_rows)
    halves = [part(given.global_.train, size.per_class, begin) for begin in (0, size.per_class)]
    seen = Domain(halves[0], Subset(given.global_.val, range(size.scored)))
    base = replace(given, labels=given.labels[:known], local=seen, global_=None, local_labels=())
    here = opened(base)
    taps = placed(here.loaded.info, size.exits, CHANNELS)
    plan = planned(here, replace(OFFLINE, mode="exits-only", exits=taps), size.epochs)
    fill(here, [plan])
    torch.manual_seed(0)
    heads = build_heads(plan)
    final = here.loaded.tail(plan.cuts[-1]).eval()
    train(here, plan, heads, final, 0)
    costs = ort_costs(here, plan, heads)
    people = [user(base, halves[1], given.global_.val, size, seed) for seed in range(size.users)]
    figures = [
        personalised(task, here, plan, heads, final, costs, size.rounds, seed) for seed, task in enumerate(people)
    ]
    rows = [*accuracy_rows(plan, figures, costs), *threshold_rows(figures)]
    seconds = step_seconds(people[0], here, plan, heads, final, size.steps)
    rows += [{"training step": name, "ms": 1e3 * median(found)} for name, found in seconds.items()]
    return rows, claims_of(figures, costs, seconds)


def part(samples: Samples, per_class: int, begin: int) -> Samples:
    """Return some images of every class, decoded once."""
    labels = samples.labels
    chosen = [np.flatnonzero(labels == one)[begin : begin + per_class] for one in np.unique(labels)]
    return Held(Subset(samples, np.sort(np.concatenate(chosen))))


def user(base: Task, train: Samples, val: Samples, size: Sizes, seed: int) -> Task:
    """Return a user's task: popularity p ∝ exp(−(rank − μ)² / 2σ²), σ = K/10, classes in an order of her own."""
    generator = np.random.default_rng((7, seed))
    count = len(base.labels)
    rank = generator.permutation(count)
    popularity = np.exp(-((rank - count / 2) ** 2) / (2 * (count / 10) ** 2))

    def drawn(samples: Samples, wanted: int) -> Samples:
        weights = popularity[samples.labels]
        wanted = min(wanted, len(samples))
        return Held(Subset(samples, np.sort(generator.choice(len(samples), wanted, False, weights / weights.sum()))))  # noqa: FBT003 - replace

    mine, scored = drawn(train, size.images), drawn(val, size.scored)
    occurring = tuple(int(row) for row in np.unique(mine.labels))
    return replace(base, name=f"user {seed}", local=Domain(mine, scored), local_labels=occurring)
