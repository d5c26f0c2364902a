"""What exits in a tail gain if the tail trains with them (Shallow-Deep Networks), and what its own answers lose.

MobileNetV2 at 96 pixels learns a user's kinds of clothing: the last blocks train on stored features, with exits at
three of them. An arm is a weight of the exits' losses in the tail's loss; next to nothing stands for a tail that trains
for itself, while its exits train at the same time. Afterwards the exits train on its features, or are solved for.
Scores are of validation photos; an arm is compared with the same seed's at next to no weight.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval, table
from benchmarks.lib.setup import clothing, opened, plan_for
from tuner.backends.base import Trial
from tuner.backends.extensions import NOTHING_ADDED
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.joint import with_exits
from tuner.backends.torch.exits.procedure import exit_logits
from tuner.backends.torch.exits.steps import HeadsSteps, solve_heads
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import local_folds, training_selections, validation_selections
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.training.epoch import EpochLoop

SPLIT, PLACES, CHANNELS, RIDGE, EPOCHS, RATE = 12, (13, 15, 17), 64, 100.0, 4, 1e-3
NOTHING, HALF, FULL = 1e-6, 0.3, 1.0
KINDS = {"trained": (CHANNELS, 0.0), "closed form": (0, RIDGE)}


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    local, seeds, epochs = (200, 2, 1) if asked.quick else (None, 3, EPOCHS)
    task = clothing(96, local, held=True)
    here = opened(task)
    right: dict[tuple[str, float], list[list[float]]] = {}
    for seed in range(seeds):
        for kind, (channels, ridge) in KINDS.items():
            for joint in (NOTHING, HALF, FULL):
                exits = tuple(Exit(place, channels) for place in PLACES)
                heads = HeadsPlan("with-tail", exits, supervised=1.0, distilled=0.0, ridge=ridge, joint=joint)
                recipe = RecipePlan(epochs=epochs, learning_rate=RATE, freeze_bn=False)
                base = plan_for(task, here.loaded, SPLIT, bits=8, recipe=recipe, alpha=0.05)
                found = accuracies(here, normal_form(replace(base, heads=heads)), seed)
                right.setdefault((kind, joint), []).append(found)
    rows = [row(kind, joint, np.array(own)) for (kind, joint), own in right.items()]
    print(table(rows))
    finish("exits_joint", rows, claims({arm: np.array(own) for arm, own in right.items()}), asked.json)


def accuracies(here: Access, plan: TrialPlan, seed: int) -> list[float]:
    """Return how often each exit, and the final head, is right on the validation photos after a tail's training."""
    fill(here, [plan])
    model = load(here.task)  # the tail's weights change in place
    here = replace(here, loaded=model)
    opened_task = OpenTask(here.task, model, NOTHING_ADDED, EagerSteps)
    torch.manual_seed(seed)
    heads = build_heads(plan)
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as folder:
        trial = Trial(plan, seed, here.store, Path(folder) / "weights.safetensors")
        TailProcedure(trial, with_exits(opened_task, heads)).carry_out()
    training = training_selections(here.task, plan)
    inputs, final = cut_inputs(here, plan, training, exact=False), model.tail(plan.answering_cuts[-1]).eval()
    if plan.heads.ridge:
        solve_heads(plan, heads, final, inputs, local_folds(training[0]), ())
    else:
        steps = HeadsSteps(plan, heads, final, inputs, loss=CROSS_ENTROPY)
        for _ in EpochLoop(steps, plan.recipe, len(inputs.labels), seed).epochs():
            pass
    scored = cut_inputs(here, plan, [validation_selections(here.task, plan.data)[0]], exact=True)
    return [float((own.argmax(axis=1) == scored.labels).mean()) for own in exit_logits(plan, heads, final, scored)]


def row(kind: str, joint: float, right: np.ndarray) -> Row:
    """Return an arm's row: means over seeds."""
    means = 100 * right.mean(axis=0)
    named = {f"exit before block {place} (%)": mean for place, mean in zip(PLACES, means, strict=False)}
    return {"exits": kind, "weight": joint, **named, "final head (%)": means[-1]}


def claims(right: dict[tuple[str, float], np.ndarray]) -> list[Claim]:
    """Claim that exits gain in the mean, and that the final head loses at most a point, by the unfavourable ends."""
    found = []
    for kind in KINDS:
        for joint in (HALF, FULL):
            change = 100 * (right[kind, joint] - right[kind, NOTHING])
            gain, half = interval(change[:, :-1].mean(axis=1))
            text = f"{gain:+.1f} ± {half:.1f} points, {len(change)} seeds"
            reference = "Shallow-Deep Networks train both together"
            claim = f"exits {kind}, weight {joint:g}: exits gain"
            found.append(Claim(claim, reference, text, gain - half > 0))
            own, own_half = interval(change[:, -1])
            text = f"{own:+.1f} ± {own_half:.1f} points, {len(change)} seeds"
            claim = f"exits {kind}, weight {joint:g}: the final head loses at most 1 point"
            found.append(Claim(claim, reference, text, own - own_half >= -1))
    return found


if __name__ == "__main__":
    main()
