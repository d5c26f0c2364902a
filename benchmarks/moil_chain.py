"""MoIL's chain: full fine-tuning, then GDM(1 %), then + LF(1), then + cache (thesis, chapters 4 and 5).

``python -m benchmarks.moil_chain [--quick] [--json FILE]``

MobileNetV2, clothing photos, batch 12 (which the thesis's own figures imply). Three kinds of step are measured,
interleaved: of the whole model, of the last layer behind a frozen prefix, of the last layer on stored fp32 features.
Totals are samples × epochs × seconds a sample, extrapolated as the thesis does (150 epochs from scratch, 60 of
incremental training), and count the filling. Accuracies come from training each arm for a few epochs, for real.

The chain with the thesis's own sizes is arithmetic, and is checked to its printed figures.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.report import Claim, Row, finish, interleave
from benchmarks.setup import arguments, clothing, opened, plan_for
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.trial.inputs import tail_inputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.run import train_tail
from tuner.backends.torch.trial.untouched import untouched
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.units import format_seconds

BATCH = 12
SCRATCH_EPOCHS, EPOCHS = 150, 60
ALPHA = 0.01
#: The thesis's: ImageNet and the bird photos, hours an epoch of everything, hours after LF(1), minutes after caching.
THESIS_GLOBAL, THESIS_LOCAL = 1_281_167, 31_316
THESIS_EPOCH_HOURS, THESIS_LF_HOURS, THESIS_CACHE_MINUTES = 184.0, 12.3, 48.0
FULL_RECIPE = RecipePlan(batch_size=BATCH, learning_rate=3e-4)
LAST_RECIPE = RecipePlan(batch_size=BATCH, learning_rate=1e-3)


def main() -> None:
    """Measure, print, write."""
    asked = arguments(__doc__ or "")
    size, local, steps, epochs = (96, 120, 4, 1) if asked.quick else (160, None, 20, 3)
    here = opened(clothing(size, local, None, held=True))
    plans = _plans(here, epochs)
    filling = fill(here, [plans["+ cache"]])
    seconds = _step_seconds(here, plans, steps)
    fill_each = filling.seconds / max(1, filling.records)
    scored = _accuracies(here, plans)
    rows: list[Row] = []
    before = None
    for name, plan in plans.items():
        total = _total_seconds(name, here, plan, seconds[name], fill_each)
        rows.append(
            {
                "arm": name,
                "samples an epoch": _epoch_samples(name, here, plan),
                "ms a sample": 1e3 * seconds[name],
                "ms an iteration": 1e3 * BATCH * seconds[name],
                "epochs counted": SCRATCH_EPOCHS if name == "full" else EPOCHS,
                "total": format_seconds(total),
                "times less": "" if before is None else f"{before / total:.1f}×",
                "local accuracy": scored[name][0],
                "global accuracy": scored[name][1],
            }
        )
        before = total
    given = untouched(here, DataPlan()).values
    rows.append({"arm": "untouched model", "local accuracy": 0.0, "global accuracy": given["global_accuracy"]})
    finish("moil_chain", rows, [*_arithmetic(), *_judged(scored, given["global_accuracy"], seconds)], asked.json)


def _plans(here: Access, epochs: int) -> dict[str, TrialPlan]:
    """Return the arms; `full` is trained on local data alone, GDM(0), which is where forgetting shows."""
    task, loaded = here.task, here.loaded
    last = loaded.info.num_blocks - 1
    whole, head = replace(FULL_RECIPE, epochs=epochs), replace(LAST_RECIPE, epochs=epochs)
    return {
        "full": plan_for(task, loaded, 0, bits=None, recipe=whole, alpha=0.0),
        "GDM(1 %)": plan_for(task, loaded, 0, bits=None, recipe=whole, alpha=ALPHA),
        "+ LF(1)": plan_for(task, loaded, last, bits=None, recipe=head, alpha=ALPHA),
        "+ cache": plan_for(task, loaded, last, bits=32, recipe=head, alpha=ALPHA),
    }


def _step_seconds(here: Access, plans: dict[str, TrialPlan], steps: int) -> dict[str, float]:
    """Return median seconds a sample of each arm's training step."""
    found = interleave({name: _stepper(here, plan) for name, plan in plans.items()}, steps)
    return {name: median(values) / BATCH for name, values in found.items()}


def _stepper(here: Access, plan: TrialPlan) -> Callable[[], float]:
    import copy

    picks = training_selections(here.task, plan)
    stored = Reader(here, plan.split, plan.cache.bits, picks) if plan.cached else None
    rows = tail_inputs(here.task, here.loaded, plan.split, picks, stored)
    steps = EagerSteps(here.task, plan, copy.deepcopy(here.loaded.tail(plan.split)), rows, 0)
    steps.begin_epoch()
    generator = np.random.default_rng(0)
    return lambda: steps.step(generator.permutation(len(rows.labels))[:BATCH], plan.recipe.learning_rate)


def _epoch_samples(name: str, here: Access, plan: TrialPlan) -> int:
    """Return the samples of an epoch; without mixing, MoIL's baseline trains on all global data too."""
    if name == "full" and here.task.global_ is not None:
        return len(here.task.local.train) + len(here.task.global_.train)
    return plan.train_samples


def _total_seconds(name: str, here: Access, plan: TrialPlan, each: float, fill_each: float) -> float:
    epochs = SCRATCH_EPOCHS if name == "full" else EPOCHS
    filling = plan.train_samples * fill_each if plan.cached else 0.0
    return _epoch_samples(name, here, plan) * epochs * each + filling


def _accuracies(here: Access, plans: dict[str, TrialPlan]) -> dict[str, tuple[float, float]]:
    """Return (local, global) accuracy of each arm, trained for its few epochs from the given weights."""
    from tuner.backends.torch.model.load import load

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, plan in plans.items():
            weights = Path(folder) / "weights.safetensors"
            opened_task = OpenTask(here.task, load(here.task), Extensions(), EagerSteps)
            outcome = train_tail(Trial(plan, 0, here.store, weights), opened_task).outcome
            found[name] = outcome.values["local_accuracy"], outcome.values["global_accuracy"]
    return found


def _arithmetic() -> list[Claim]:
    """Hold the thesis's figures against their own arithmetic."""
    mixing = SCRATCH_EPOCHS / EPOCHS * (THESIS_GLOBAL + THESIS_LOCAL) / (ALPHA * THESIS_GLOBAL + THESIS_LOCAL)
    hours = THESIS_EPOCH_HOURS * SCRATCH_EPOCHS / mixing
    feature, image = 1280 * 4, 3 * 224 * 224
    figures = (
        ("GDM(1 %) saves", f"{mixing:.2f}×", "74.36×"),
        ("hours with GDM(1 %)", f"{hours:.2f}", "371.18"),
        ("years before", f"{THESIS_EPOCH_HOURS * SCRATCH_EPOCHS / 24 / 365:.2f}", "3.15"),
        ("LF(1) saves", f"{371.2 / THESIS_LF_HOURS:.2f}×", "30.18×"),
        ("the cache saves", f"{THESIS_LF_HOURS * 60 / THESIS_CACHE_MINUTES:.1f}×", "15.4×"),
        ("a feature is smaller than 4-byte pixels", f"{image * 4 / feature:.1f}×", "117.6×"),
        ("a feature is smaller than 1-byte pixels", f"{image / feature:.1f}×", "29.4×"),
        (
            "samples an iteration",
            f"{6.055 / (THESIS_EPOCH_HOURS * 3600 / (THESIS_GLOBAL + THESIS_LOCAL)):.0f}",
            "12",
        ),
    )
    wrong = [f"{what}: {ours}, not {theirs}" for what, ours, theirs in figures if ours != theirs]
    said = "; ".join(f"{what} {ours}" for what, ours, _ in figures)
    return [
        Claim(
            "the thesis's chain is its own arithmetic", "thesis, recomputed", said, "exact", not wrong, "; ".join(wrong)
        )
    ]


def _judged(scored: dict[str, tuple[float, float]], given: float, seconds: dict[str, float]) -> list[Claim]:
    forgets, mixed = given - scored["full"][1], given - scored["GDM(1 %)"][1]
    kept = given - scored["+ LF(1)"][1]
    same = max(abs(a - b) for a, b in zip(scored["+ LF(1)"], scored["+ cache"], strict=True))
    chain = seconds["full"] / seconds["+ cache"]
    steps = (seconds["full"] / seconds["+ LF(1)"], seconds["+ LF(1)"] / seconds["+ cache"])
    return [
        Claim(
            "training the whole model on local data alone forgets; mixing and freezing forget less, in that order",
            "thesis: -69, -21.5 and -6.6 points",
            f"{-100 * forgets:.1f}, {-100 * mixed:.1f} and {-100 * kept:.1f} points",
            "quality",
            forgets > mixed > kept,
        ),
        Claim(
            "stored features change accuracy by at most 0.9 points",
            "thesis: 0.9 points local",
            f"{100 * same:.2f} points at most, local or global",
            "quality",
            same <= 0.009,
        ),
        Claim(
            "a step gets cheaper along the chain",
            "thesis: 30.1× by LF(1) (slow backward kernels; 3× by multiply-adds), 15.7× by the cache",
            f"{steps[0]:.1f}× by LF(1), {steps[1]:.1f}× by the cache, {chain:.0f}× together",
            "ratio",
            min(steps) > 1,
        ),
    ]


if __name__ == "__main__":
    main()
