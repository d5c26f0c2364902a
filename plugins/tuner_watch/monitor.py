"""Detection of drift: streams of values, their tests, and thresholds that rise. Pure functions on the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.bundle.format import Bundle
from tuner.runtime.infer.prediction import Prediction
from tuner_watch.drift import PageHinkley
from tuner_watch.state import ServiceState

DOUBT, ERRORS, EXIT = "doubt", "errors", "exit"


@dataclass(frozen=True, slots=True)
class Watch:
    """When drift is detected, and what follows.

    PersEPhonEE's orchestrator (section 3.2) raises the threshold where an exit's mean loss stays high. That is decided
    here by the Page–Hinkley test, on losses in [0, 1] so that one limit suits all models.

    Attributes:
        exploration: Probability that all exits run on a sample, and are compared with the last, on an idle device.
        enough: Number of new samples at which a round is due.
        least: Number of samples since drift asked for a round before it is due.
        step: Amount by which a threshold rises, on an idle device.
        tests: Tests by stream: ``doubt`` is 1 − the answer's probability, ``errors`` is 1 where a label contradicts the
            answer, and ``exit`` (each exit's own) is `Targets.exit_losses`.
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


def answered(state: ServiceState, prediction: Prediction, exits: int) -> ServiceState:
    """Return the state with one more answer."""
    left = list(state.left or (0,) * exits)
    left[prediction.exit] += 1
    return replace(state, answers=state.answers + 1, left=tuple(left), seconds=state.seconds + prediction.seconds)


def explored(state: ServiceState, losses: Sequence[float]) -> ServiceState:
    """Return the state with the losses (`Targets.exit_losses`) of one more sample that every exit ran on."""
    count = state.explored + 1
    before = state.losses or (0.0,) * len(losses)
    means = tuple(mean + (loss - mean) / count for mean, loss in zip(before, losses, strict=True))
    return replace(state, explored=count, losses=means)


def streams_of(prediction: Prediction, label: str | None, bundle: Bundle) -> dict[str, float]:
    """Return the next value of the streams that drift is looked for in: doubt, which numbers have none of, and errors.

    Raises:
        BundleError: A target is no number.
    """
    streams = {} if prediction.values is not None else {DOUBT: 1 - prediction.probability}
    is_right = None if label is None else bundle.targets.is_right(prediction.label, label, bundle.labels)
    if is_right is not None:
        streams[ERRORS] = float(not is_right)
    return streams


def watched(
    state: ServiceState, values: Mapping[str, float], thresholds: Sequence[float], watch: Watch
) -> ServiceState:
    """Return the state after each stream's next value; an alarm asks for a round, an exit's also raises its threshold.

    Args:
        state: Current state.
        values: Values by stream: ``doubt``, ``errors``, ``exit 0``, ``exit 1``, …
        thresholds: Current threshold of every exit but the last, where the state has none.
        watch: Settings.
    """
    tests = dict(state.tests)
    for stream, value in values.items():
        kind, _, number = stream.partition(" ")
        test = tests.get(stream, watch.tests[kind]).after(value)
        tests[stream] = test
        if not test.alarms:
            continue
        reason = f"drift: {stream} has risen to {test.mean:.2f} on average over {test.count} samples"
        if kind == EXIT:
            raised = list(state.thresholds or thresholds)
            before = raised[int(number)]
            raised[int(number)] = round(min(1.0, before + watch.step), 4)
            reason += f", its threshold from {before:g} to {raised[int(number)]:g}"
            state = replace(state, thresholds=tuple(raised))
        if state.asked is None:
            state = replace(state, asked=reason, asked_at=state.new_samples)
    return replace(state, tests=tests)


def due(state: ServiceState, samples: int, watch: Watch) -> str | None:
    """Return why a round is due, or None: of the ring's `samples`, enough are new, or at least some after drift."""
    new = min(state.new_samples, samples)
    if state.asked is not None and new >= watch.least and state.new_samples - state.asked_at >= watch.least:
        return state.asked
    return f"{new} new samples are kept" if new >= watch.enough else None


def after_round(state: ServiceState, *, swapped: bool) -> ServiceState:
    """Return the state after a round: tests start anew; with another model in use, so do the counts."""
    state = replace(state, tests={}, new_samples=0, asked=None, asked_at=0)
    if not swapped:
        return state
    return replace(state, answers=0, left=(), seconds=0.0, explored=0, losses=(), thresholds=None)
