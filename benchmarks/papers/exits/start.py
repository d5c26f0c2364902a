"""What exits gain if they begin with the global data: accuracy of each exit for users with few images.

MobileNetV2 and users whose class popularity is Gaussian over 200 ImageNet classes (PersEPhonEE, section 4). Of each
class, 20 images are global data and 20 others the users'. Exits in closed form begin with nothing, with an image of
each class mixed in, or with sums of all 4,000 global images; heads that train by steps begin with nothing, or with
weights that were trained on these; one arm then mirrors the maps that they read at random. What the exits begin with
is learned for the first user and found by the others. Without labels, exits learn the final head's answers, and
agreement with it is what is scored.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, table
from benchmarks.lib.setup import Held, clothing, opened, plan_for
from tuner.backends.extensions import NOTHING_ADDED
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.procedure import exit_logits
from tuner.backends.torch.exits.start import load_starts, start_sums, starts
from tuner.backends.torch.exits.steps import HeadsSteps, solve_heads
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import (
    calibration_selection,
    local_folds,
    training_selections,
    validation_selections,
)
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.task import Domain, Samples, Subset, Task
from tuner.training.epoch import EpochLoop
from tuner_exits import placed

PER_CLASS, SCORED, CHANNELS, EXITS, BEGIN, EPOCHS = 20, 400, 64, 3, 0.25, 8
LABELS = HeadsPlan("exits-only", supervised=1.0, distilled=0.0)
ANSWERS = HeadsPlan("exits-only", supervised=0.0, distilled=1.0)
#: By arm: losses, penalty (0 trains by steps), share of the global data that is mixed in, weight of what exits begin
#: with.
ARMS = {
    "labels, closed form, the user's images alone": (LABELS, 100.0, 0.0, 0.0),
    "labels, closed form, 200 global images mixed in": (LABELS, 100.0, 0.05, 0.0),
    "labels, closed form, begun with all": (LABELS, 100.0, 0.0, 1.0),
    "no labels, closed form, 200 global images mixed in": (ANSWERS, 100.0, 0.05, 0.0),
    "no labels, closed form, begun with all": (ANSWERS, 100.0, 0.0, 1.0),
    "labels, trained, the user's images alone": (LABELS, 0.0, 0.0, 0.0),
    "labels, trained, begun with all": (LABELS, 0.0, 0.0, 1.0),
    "labels, trained, begun with all, maps mirrored": (replace(LABELS, flips=True), 0.0, 0.0, 1.0),
}
BEGUN = {
    "labels, closed form, 200 global images mixed in": "labels, closed form, begun with all",
    "no labels, closed form, 200 global images mixed in": "no labels, closed form, begun with all",
    "labels, trained, the user's images alone": "labels, trained, begun with all",
    "labels, trained, begun with all": "labels, trained, begun with all, maps mirrored",
}


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    pixels, users, images = (64, 2, 150) if asked.quick else (96, 3, 300)
    given = clothing(pixels, 1, 1)
    if given.global_ is None:
        raise ValueError("the clothing task has global data")
    first, rest = (part(given.global_.train, begin) for begin in (0, PER_CLASS))
    local, known = Domain(first, first), Domain(first, Subset(first, range(2)))
    base = replace(given, labels=given.labels[: len(given.head_rows)], local=local, global_=known, local_labels=())
    right: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as folder:
        loaded = None
        for seed in range(users):
            task = user(base, rest, given.global_.val, images, seed)
            here = opened(task, loaded=loaded, folder=Path(folder))
            loaded = here.loaded
            for arm, (heads, ridge, alpha, weight) in ARMS.items():
                plan = planned(here, replace(heads, ridge=ridge, global_weight=weight), alpha)
                right[arm].append(accuracies(here, plan, seed))
    rows = [row(arm, np.array(own)) for arm, own in right.items()]
    print(table(rows))
    finish("exits_start", rows, claims(right), asked.json)


def part(samples: Samples, begin: int) -> Samples:
    """Return `PER_CLASS` images of every class, decoded once."""
    chosen = [np.flatnonzero(samples.labels == one)[begin : begin + PER_CLASS] for one in np.unique(samples.labels)]
    return Held(Subset(samples, np.sort(np.concatenate(chosen))))


def user(base: Task, train: Samples, val: Samples, images: int, seed: int) -> Task:
    """Return a user's task: popularity p ∝ exp(−(rank − μ)² / 2σ²), σ = K/10, classes in an order of her own."""
    generator = np.random.default_rng((11, seed))
    count = len(base.labels)
    rank = generator.permutation(count)
    popularity = np.exp(-((rank - count / 2) ** 2) / (2 * (count / 10) ** 2))

    def drawn(samples: Samples, wanted: int) -> Samples:
        weights = popularity[samples.labels]
        return Held(Subset(samples, generator.choice(len(samples), wanted, False, weights / weights.sum())))  # noqa: FBT003 - replace

    mine, scored = drawn(train, images), drawn(val, SCORED)
    occurring = tuple(int(row) for row in np.unique(mine.labels))
    return replace(base, name=f"user {seed}", local=Domain(mine, scored), local_labels=occurring)


def planned(here: Access, heads: HeadsPlan, alpha: float) -> TrialPlan:
    """Return the plan of an arm: nothing but exits trains."""
    info = here.loaded.info
    exits = placed(info, EXITS, 0 if heads.ridge else CHANNELS, BEGIN)
    plan = plan_for(here.task, here.loaded, info.num_blocks, bits=8, recipe=RecipePlan(epochs=EPOCHS), alpha=alpha)
    return normal_form(replace(plan, heads=replace(heads, exits=exits)))


def accuracies(here: Access, plan: TrialPlan, seed: int) -> list[float]:
    """Return how often each exit, and the final head, is right on a user's validation images.

    Without labels, right is what the final head answers.
    """
    fill(here, [plan])
    begun, final = starts(here, plan, NOTHING_ADDED), here.loaded.tail(plan.cuts[-1]).eval()
    training = training_selections(here.task, plan)
    inputs = cut_inputs(here, plan, training, exact=False)
    torch.manual_seed(seed)
    heads = build_heads(plan)
    if plan.heads.ridge:
        sums = [start_sums(own, plan.heads) for own in begun.tensors]
        answered = cut_inputs(here, plan, [calibration_selection(here.task, plan)], exact=True)
        solve_heads(plan, heads, final, inputs, local_folds(training[0]), sums, answered)
    else:
        load_starts(heads, begun)
        steps = HeadsSteps(plan, heads, final, inputs, loss=CROSS_ENTROPY)
        for _ in EpochLoop(steps, plan.recipe, len(inputs.labels), seed).epochs():
            pass
    scored = cut_inputs(here, plan, [validation_selections(here.task, plan.data)[0]], exact=True)
    logits = exit_logits(plan, heads, final, scored)
    truth = scored.labels if plan.heads.supervised else logits[-1].argmax(axis=1)
    return [float((own.argmax(axis=1) == truth).mean()) for own in logits]


def row(arm: str, right: np.ndarray) -> Row:
    """Return an arm's row: means over users."""
    means = 100 * right.mean(axis=0)
    return {"exits": arm, **{f"exit {at} (%)": mean for at, mean in enumerate(means[:-1])}, "final head (%)": means[-1]}


def claims(right: dict[str, list[list[float]]]) -> list[Claim]:
    """Claim that every exit of every user gains: by the least gain."""
    found = []
    for without, begun in BEGUN.items():
        gains: Sequence[float] = (100 * (np.array(right[begun]) - np.array(right[without])))[:, :-1].ravel()
        text = f"{min(gains):+.1f} to {max(gains):+.1f} points, {np.mean(gains):+.1f} in the mean"
        claim = f"{begun}, against {without}: exits gain"
        mirrors = begun.endswith("mirrored")
        reference = "Cache-and-Reuse changes stored maps" if mirrors else "PersEPhonEE trains exits offline first"
        found.append(Claim(claim, reference, text, min(gains) > 0))
    return found


if __name__ == "__main__":
    main()
