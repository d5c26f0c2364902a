"""An arm of `benchmarks.alternatives`: Optuna over a plain PyTorch loop, as its documentation shows it.

The knobs are the block that training begins with, the learning rate and the epochs. Each trial trains from the pixels
on `local.train` and is scored on `local.val`; the best one is trained again on all samples. All of it has the seconds.
"""

import copy
import time

import numpy as np
import optuna
import torch
from torch import nn
from torch.nn import functional

from benchmarks.alternatives.arms import BATCH, Subject
from benchmarks.alternatives.claims import Result
from benchmarks.alternatives.problem import Problem, drawn
from benchmarks.alternatives.trained import JUDGED, SMOOTHING, TAIL_BATCH, freeze_norms, softmax
from benchmarks.lib.setup import Joined
from tuner.arrays import Array
from tuner.backends.torch.trial.inputs import inference_prefix
from tuner.task import Samples

#: Least and largest learning rate of AdamW.
RATES = (1e-5, 3e-3)
#: Most epochs.
EPOCHS = 12
#: What is trained where no trial ends within half of the seconds: the head alone.
FALLBACK_RATE = 1e-3


class Loop:
    """A plain training loop over decoded samples in memory; the blocks before the cut are frozen.

    Args:
        problem: The problem.
        seed: Seed.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.subject, self.seed, task = Subject(problem), seed, problem.task
        old = problem.mixed(len(problem.own), seed) if problem.adds_classes else None
        parts: list[Samples] = [task.local.train, task.local.val, *([] if old is None else [old])]
        self.x, self.y = self._loaded(Joined(*parts))
        kinds = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self.every, self.fitted = torch.arange(len(self.y)), torch.from_numpy(np.flatnonzero(kinds != 1))
        self.judges = [task.local.val]
        if problem.adds_classes and task.global_ is not None:
            self.judges.append(drawn(task.global_.val, JUDGED, seed))
        self.judged = [self._loaded(samples)[0] for samples in self.judges]

    def _loaded(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.subject.problem.task.batch(samples, np.arange(len(samples)))
        return torch.from_numpy(x), torch.from_numpy(samples.labels)

    def train(self, cut: int, rate: float, epochs: int, rows: torch.Tensor, until: float) -> tuple[nn.Module, bool]:
        """Return a trained model, and whether it had the time for all epochs."""
        torch.manual_seed(self.seed)
        prefix = inference_prefix(self.subject.model, cut)
        tail = copy.deepcopy(self.subject.model.tail(cut))
        model = nn.Sequential(prefix, tail)
        freeze_norms(tail.train())
        optimiser = torch.optim.AdamW(tail.parameters(), rate)
        for _ in range(epochs):
            for batch in torch.split(rows[torch.randperm(len(rows))], TAIL_BATCH):
                if time.perf_counter() > until:
                    return model.eval(), False
                with torch.no_grad():
                    read = prefix(self.x[batch])
                loss = functional.cross_entropy(tail(read), self.y[batch], label_smoothing=SMOOTHING)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
                optimiser.step()
        return model.eval(), True

    def score(self, model: nn.Module) -> float:
        """Return the accuracy on `local.val`; beside old classes, its mean with that on global validation samples."""
        answers = [softmax(logits(model, x)) for x in self.judged]
        right = [self.subject.right(scores, samples) for scores, samples in zip(answers, self.judges, strict=True)]
        return float(np.mean([np.mean(flags) for flags in right]))


def logits(model: nn.Module, x: torch.Tensor) -> Array:
    """Return a model's logits [n, labels]."""
    with torch.inference_mode():
        result: Array = np.concatenate([model(part).numpy() for part in torch.split(x, BATCH)])
    return result


def optuna_loop(problem: Problem, seed: int, allowed: float) -> list[Result]:
    """Return what the best trial of Optuna's TPE reaches after it was trained again on all samples.

    The search ends when the time that is left is what the best trial's training would take on all samples.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    began = time.perf_counter()
    end, loop = began + allowed, Loop(problem, seed)
    share = len(loop.every) / len(loop.fitted)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    best, reserve = (loop.subject.head_cut, FALLBACK_RATE, EPOCHS), allowed / 2
    top = -1.0
    while time.perf_counter() < end - reserve:
        trial, start = study.ask(), time.perf_counter()
        knobs = (
            trial.suggest_int("cut", 1, loop.subject.head_cut),
            trial.suggest_float("rate", *RATES, log=True),
            trial.suggest_int("epochs", 1, EPOCHS),
        )
        model, is_whole = loop.train(*knobs, loop.fitted, end - reserve)
        if not is_whole:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        seconds, value = time.perf_counter() - start, loop.score(model)
        study.tell(trial, value)
        if value > top:
            top, best, reserve = value, knobs, share * seconds
    model, _ = loop.train(*best, loop.every, end)
    seconds, task = time.perf_counter() - began, problem.task
    done = sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)

    def scores(samples: Samples) -> Array:
        parts = np.array_split(np.arange(len(samples)), -(-len(samples) // BATCH))
        return softmax(np.concatenate([logits(model, torch.from_numpy(task.batch(samples, rows))) for rows in parts]))

    found = loop.subject.tested(f"Optuna with PyTorch {allowed:.0f} s", seconds, scores)
    cut, rate, epochs = best
    note = f"{done} of {len(study.trials)} trials; cut {cut}, rate {rate:.1e}, {epochs} epochs"
    return [Result(found.arm, seconds, found.local, found.known, note)]
