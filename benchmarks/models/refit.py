"""What the refit of an export brings: fixed plans, trained on `local.train` and again on all of the user's samples.

`python -m benchmarks.models.refit [--quick] [--tasks NAME ...] [--seeds N] [--json FILE]`

Nothing is searched, so that no choice of a lucky trial is in the difference. Of each task of `benchmarks.alternatives`,
four plans: a head in closed form, and a joint one where there are global samples; the two cheapest tails of the model's
ladder that train more than the head, 8 epochs, solved again, at the learning rate that a study begins with; a training
that diverges is tried again at a third of it, as a study does. Each is scored on the test with the trial's weights;
with those of the refit (as `tuner export` does it); after as many steps as the trial took, instead of epochs; and with
the trial's tail, whose head alone is solved for on all samples. Seeds change which samples are the user's and
`local.val`, and the training.
"""

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from benchmarks.alternatives.__main__ import prepare
from benchmarks.alternatives.arms import Part, Subject
from benchmarks.alternatives.tasks import ORDINARY
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from tuner.arrays import Array
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.trial.edits.solve_again import solve_again
from tuner.backends.torch.trial.inputs import training_inputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.errors import DivergedError
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin.core import build_host
from tuner.results.records.trial import HEAD_SOLVED, Outcome
from tuner.store.store import Store
from tuner.task.info import task_info
from tuner_closed_form import ClosedForm, Knobs
from tuner_freeze import rate_of
from tuner_gdm import usual_alpha

TASKS, SEEDS, EPOCHS, TAILS = ("sign", "objects", "digits", "emg", "spoken"), 5, 8, 2
#: Learning rate of a tail whose model knows other classes, relative to one that may forget (as in a study).
KEEPING = 0.15
#: Of two accuracies, how far below zero the mean gain of a task may be.
NOISE = 0.5
TRIAL, REFIT, FEWER, HEAD = "trial", "refit", "as many steps", "head alone"
#: Accuracies in percent by domain, of each way.
Scores = Mapping[str, Mapping[str, float]]


class Lab:
    """One task and seed: trains plans in this process, and scores weights on the test."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.problem, self.seed, self.folder = ORDINARY[name](seed), seed, folder
        if self.problem.task.model.pretrain is not None:
            prepare(self.problem)
        self.subject, self.store = Subject(self.problem), Store(folder / "store")
        self._stored: dict[int, dict[str, Part]] = {}

    def plans(self) -> dict[str, TrialPlan]:
        """Return the plans by name."""
        info, task = self.subject.model.info, task_info(self.problem.task)
        data = DataPlan(min(1.0, usual_alpha(task)) if task.global_per_class else 0.0)
        threads = RuntimePlan(threads=torch.get_num_threads())
        base = TrialPlan(info, task, data=data, cache=CachePlan("cache", 16), runtime=threads)
        kinds = (False, True) if data.alpha else (False,)
        plans = {("joint head" if kind else "head"): ClosedForm().apply(base, Knobs(kind)) for kind in kinds}
        for blocks in [depth for depth in info.depths if depth > 1][:TAILS]:
            rate = rate_of(info.share(blocks)) * (KEEPING if self.problem.adds_classes else 1)
            recipe = RecipePlan(EPOCHS, 16, learning_rate=rate, schedule="warmup", label_smoothing=0.1, solve_again=True)
            plans[f"last {blocks} blocks"] = replace(base, split=info.num_blocks - blocks, recipe=recipe)
        return {name: normal_form(plan) for name, plan in plans.items()}

    def measured(self, plan: TrialPlan) -> Scores:
        """Return the scores of a plan's weights, by way."""
        path = self.folder / "weights.safetensors"
        try:
            outcome = self._trained(plan, path)
        except DivergedError:
            slower = replace(plan.recipe, learning_rate=plan.recipe.learning_rate / 3)
            return self.measured(replace(plan, recipe=slower))
        scores = {TRIAL: self._scored(plan, self._tail(plan, path))}
        solved, epochs = bool(outcome.values.get(HEAD_SOLVED)), max(1, len(outcome.epochs))
        again = plan.refitted(epochs, solve_again=solved)
        if not plan.traits.solves:
            tail = self._tail(plan, path)
            train = training_inputs(self._opened().access(again, self.store), again, self._selections(again))
            solve_again(self.problem.task, tail, self.subject.model.trusted_rows, train, {})
            scores[HEAD] = self._scored(plan, tail.eval())
            steps = max(1, round(epochs * plan.train_samples / again.train_samples))
            fewer = plan.refitted(steps, solve_again=solved)
            self._trained(fewer, path)
            scores[FEWER] = self._scored(fewer, self._tail(fewer, path))
        self._trained(again, path)
        return {**scores, REFIT: self._scored(again, self._tail(again, path))}
