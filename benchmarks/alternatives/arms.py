"""What the plain arms of `benchmarks.alternatives` share, and the arms that fit a head on frozen features."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from benchmarks.alternatives.claims import Result
from benchmarks.alternatives.heads import HEADS, Fit, ridge
from benchmarks.alternatives.problem import Problem
from tuner.arrays import Array, Doubles, Floats, Labels
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.inputs import inference_prefix
from tuner.machine.control_group import usable_processors
from tuner.task import Samples, stratified_holdout
from tuner.task.data.samples import mean_of_wholes, wholes

#: Most global samples that an arm trains on in addition to the user's.
MIXED = 2000
#: Share of the user's samples that tells how large the scores of a head next to the old one are.
HELD_OUT = 0.2
#: Samples that go through the network at a time.
BATCH = 32


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What some blocks make of samples.

    Attributes:
        x: float32 [n, ...].
        y: Labels, int64 [n].
        seconds: What computing it took, reading the files included.
    """

    x: Floats
    y: Labels
    seconds: float = 0.0


class Subject:
    """A problem with its model, as plain arms read it.

    Attributes:
        problem: The problem.
        model: Its model with one row of the head for each label; rows of new classes are zeros.
        head_cut: Number of the block that is the head.
    """

    def __init__(self, problem: Problem) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or usable_processors()))
        self.problem, self.model = problem, load(problem.task)
        self.head_cut = self.model.info.num_blocks - 1

    def stored(self, samples: Samples, cut: int) -> Part:
        """Run samples through the blocks before a cut, once."""
        began, prefix, parts = time.perf_counter(), inference_prefix(self.model, cut), list[Array]()
        with torch.inference_mode():
            for rows in np.array_split(np.arange(len(samples)), -(-len(samples) // BATCH)):
                parts.append(prefix(torch.from_numpy(self.problem.task.batch(samples, rows))).numpy())
        return Part(np.concatenate(parts), samples.labels, time.perf_counter() - began)

    def frozen(self, samples: Samples) -> Part:
        """Return what the head reads, [n, features]; of sounds, the mean over the patches of each."""
        part = self.stored(samples, self.head_cut)
        x, y = self.answered(part.x.reshape(len(part.x), -1), samples)
        return Part(x.astype(np.float32), y, part.seconds)

    def answered(self, values: Array, samples: Samples) -> tuple[Array, Labels]:
        """Return values and labels of what is answered as one: of samples, or of sounds the mean over their patches."""
        if not self.problem.whole:
            return values, samples.labels
        _, places = wholes(samples)
        return mean_of_wholes(values, places), samples.labels[np.unique(places, return_index=True)[1]]

    def right(self, scores: Array, samples: Samples) -> tuple[int, ...]:
        """Return whether scores [n, labels], which are probabilities if they are of patches, are right: 0 or 1."""
        values, labels = self.answered(scores, samples)
        return tuple(int(flag) for flag in values.argmax(1) == labels)

    def tested(self, arm: str, seconds: float, scores: Callable[[Samples], Array]) -> Result:
        """Score an arm on the tests by what gives probabilities of samples."""
        known = self.problem.global_test
        local = self.right(scores(self.problem.test), self.problem.test)
        return Result(arm, seconds, local, None if known is None else self.right(scores(known), known))


def rows_right(rows: Array, scores: Array, labels: Labels) -> tuple[int, ...]:
    """Return whether the best of some scores is right, 0 or 1; column i is the label `rows[i]`."""
    return tuple(int(flag) for flag in rows[scores.argmax(1)] == labels)


def heads(problem: Problem, seed: int) -> list[Result]:
    """Return what heads on frozen features reach, all on one pass over the samples, whose seconds each arm has.

    With global data, each head is fitted a second time on the user's and at most 2,000 global samples, every class
    counting alike; and a ridge head of the user's classes is put next to the old head. A head of the user's classes
    alone answers none of the old ones.
    """
    subject = Subject(problem)
    own, test, mixed = subject.frozen(problem.own), subject.frozen(problem.test), problem.mixed(MIXED, seed)
    known = None if problem.global_test is None else subject.frozen(problem.global_test)
    results = list[Result]()

    def tried(arm: str, fit: Fit, part: Part, *, balanced: bool) -> None:
        began, (rows, y) = time.perf_counter(), np.unique(part.y, return_inverse=True)
        scores = fit(part.x, y, len(rows), balanced=balanced, seed=seed)
        seconds = part.seconds + time.perf_counter() - began
        answers = None if known is None else rows_right(rows, scores(known.x), known.y)
        results.append(Result(arm, seconds, rows_right(rows, scores(test.x), test.y), answers))

    for name, fit in HEADS.items():
        tried(name, fit, own, balanced=False)
    if mixed is None or known is None:
        return results
    old = subject.frozen(mixed)
    both = Part(np.concatenate([own.x, old.x]), np.concatenate([own.y, old.y]), own.seconds + old.seconds)
    for name, fit in HEADS.items():
        tried(f"{name} + global", fit, both, balanced=True)
    layer = subject.model.tail(subject.head_cut).eval()
    if problem.adds_classes:
        began = time.perf_counter()
        scores = beside(layer, len(problem.task.head_rows), own, old)
        seconds = both.seconds + time.perf_counter() - began
    else:
        scores, seconds = given_scores(layer, own.x), 0.0
    every = np.arange(len(problem.task.labels))
    local, answers = (rows_right(every, scores(part.x), part.y) for part in (test, known))
    name = "ridge next to the old head" if problem.adds_classes else "untouched"
    return [*results, Result(name, seconds, local, answers)]


def given_scores(layer: nn.Module, like: Array) -> Callable[[Array], Array]:
    """Return what gives the old head's logits of features [n, features]."""
    shape = [-1, *_shape_for(layer, like)]

    def scores(x: Array) -> Array:
        with torch.inference_mode():
            logits: Array = layer(torch.from_numpy(x).reshape(shape)).numpy()
        return logits

    return scores


def _shape_for(layer: nn.Module, like: Array) -> tuple[int, ...]:
    """Return the shape of a sample that a head takes: flat, or a map of one position."""
    flat = (like.shape[1],)
    try:
        with torch.inference_mode():
            layer(torch.from_numpy(like[:1]))
    except RuntimeError:
        return (*flat, 1, 1)
    return flat


def beside(layer: nn.Module, old_rows: int, own: Part, old: Part) -> Callable[[Array], Array]:
    """Return the old head with rows for the user's classes: ridge, scaled to the spread of the old head's best logits.

    The best logits that the old head gives the global samples, and ridge gives those of the user's samples that it was
    not fitted on, then have one mean and deviation.
    """
    rows, y = np.unique(own.y, return_inverse=True)
    given, solved = given_scores(layer, own.x), ridge(own.x, y, len(rows), balanced=False)
    fitted, rest = stratified_holdout(y, HELD_OUT)
    mine = ridge(own.x[fitted], y[fitted], len(rows), balanced=False)(own.x[rest]).max(1)
    theirs = given(old.x)[:, :old_rows].max(1)
    scale = float(theirs.std() / mine.std())

    def scores(x: Array) -> Doubles:
        logits: Doubles = given(x).astype(np.float64)
        logits[:, rows] = scale * (solved(x) - mine.mean()) + theirs.mean()
        return logits

    return scores
