"""What the answers say about drift: streams, their tests, and thresholds that rise. Pure functions on the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tuner.runtime.drift import PageHinkley
from tuner.runtime.personaliser import Prediction
from tuner.runtime.state import State

DOUBT, ERRORS, EXIT = "doubt", "errors", "exit"


@dataclass(frozen=True, slots=True)
class Watch:
    """When the user's world counts as changed, and what follows.

    PersEPhonEE's orchestrator (section 3.2) raises the threshold where an exit's mean loss stays high; "stays high" is
    the Page–Hinkley test here, on losses in [0, 1] so that one limit does for all models.

    Attributes:
        exploration: Probability that all exits run on a sample, and are compared with the last.
        enough: New samples that a round is due at.
        least: New samples, since it was asked for, that a round wants which drift has asked for.
        step: By which a threshold rises.
        tests: By stream: ``doubt`` is 1 − the answer's probability, ``errors`` 1 where a label says otherwise,
            ``exit`` (each exit's own) 1 − the probability it gives to the last exit's answer.
    """

    exploration: float = 0.05
    enough: int = 100
    least: int = 50
    step: float = 0.05
    tests: Mapping[str, PageHinkley] = field(
        default_factory=lambda: {
            DOUBT: PageHinkley(limit=5.0),
            ERRORS: PageHinkley(limit=10.0),
            EXIT: PageHinkley(limit=5.0, least=20),
        }
    )


def answered(state: State, prediction: Prediction, exits: int) -> State:
    """Count an answer."""
    left = list(state.left or (0,) * exits)
    left[prediction.exit] += 1
    return replace(state, answers=state.answers + 1, left=tuple(left), seconds=state.seconds + prediction.seconds)


def explored(state: State, found: npt.NDArray[np.float64]) -> State:
    """Take in what every exit says of one sample: float64 [exits, labels]."""
    losses = exit_losses(found)
    count = state.explored + 1
    before = state.losses or (0.0,) * len(losses)
    means = tuple(mean + (loss - mean) / count for mean, loss in zip(before, losses, strict=True))
    return replace(state, explored=count, losses=means)


def exit_losses(found: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Return 1 − the probability that each exit but the last gives to the last's answer: float64 [exits, labels]."""
    return tuple(float(1 - one) for one in found[:-1, found[-1].argmax()])


def watched(state: State, values: Mapping[str, float], thresholds: Sequence[float], watch: Watch) -> State:
    """Give each stream its value; a stream that alarms asks for a round, an exit's also raises its threshold.

    Args:
        state: So far.
        values: By stream: ``doubt``, ``errors``, ``exit 0``, ``exit 1``, …
        thresholds: In use, of every exit but the last.
        watch: Settings.
    """
    tests = dict(state.tests)
    for stream, value in values.items():
        kind, _, number = stream.partition(" ")
        test = tests.get(stream, watch.tests[kind]).after(value)
        tests[stream] = test
        if not test.alarms:
            continue
        said = f"drift: {stream} has risen to {test.mean:.2f} on average over {test.count} samples"
        if kind == EXIT:
            raised = list(state.thresholds or thresholds)
            before = raised[int(number)]
            raised[int(number)] = round(min(1.0, before + watch.step), 4)
            said += f", its threshold from {before:g} to {raised[int(number)]:g}"
            state = replace(state, thresholds=tuple(raised))
        if state.asked is None:
            state = replace(state, asked=said, asked_at=state.new_samples)
    return replace(state, tests=tests)


def due(state: State, kept: int, watch: Watch) -> str | None:
    """Return why a round is due, or None: enough new samples, or drift and at least a few.

    Args:
        state: So far.
        kept: Samples in the ring.
        watch: Settings.
    """
    new = min(state.new_samples, kept)
    if state.asked is not None and new >= watch.least and state.new_samples - state.asked_at >= watch.least:
        return state.asked
    return f"{new} new samples are kept" if new >= watch.enough else None


def settled(state: State, *, swapped: bool) -> State:
    """Return the state after a round: tests begin anew; with another model in use, so do the counts."""
    state = replace(state, tests={}, new_samples=0, asked=None, asked_at=0)
    if not swapped:
        return state
    return replace(state, answers=0, left=(), seconds=0.0, explored=0, losses=(), thresholds=None)
