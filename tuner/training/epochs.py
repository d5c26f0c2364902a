"""All epochs of a trial, what is logged of each, and what ends them early."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.machine.awake import CLOCK
from tuner.training.epoch import EpochLoop

#: What is logged of an epoch: its number, loss and seconds, and what else was measured.
Entry = dict[str, float]
#: Called with progress; returns whether to stop at the next step.
Report = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class BetweenEpochs:
    """What happens between two epochs.

    Attributes:
        score: Returns the local validation accuracy; called where the recipe has patience.
        room: Returns the bytes that what trains may grow by; None for no limit.
        write: Takes the log and the training seconds so far, to continue from when the trial is cut short.
    """

    score: Callable[[], float]
    room: Callable[[], int | None] = lambda: None
    write: Callable[[Sequence[Entry], float], None] = lambda _entries, _seconds: None


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """What a training measured.

    Attributes:
        entries: One for each whole epoch.
        seconds: Training time, without scoring.
        ended: Why it ended early; empty where it did not.
        requested: Whether it ended on request.
    """

    entries: tuple[Entry, ...] = ()
    seconds: float = 0.0
    ended: str = ""
    requested: bool = False


def train_epochs(
    loop: EpochLoop, report: Report, between: BetweenEpochs, start: TrainingLog = TrainingLog(), of: str = ""
) -> TrainingLog:
    """Train the epochs that are left after those of a log, and log each.

    `of` is what trains, in the reason that ended it: ``" of the exits"``.

    Raises:
        TrainingError: The loss is no longer a number.
    """
    recipe, entries, seconds = loop.recipe, list(start.entries), start.seconds
    for number in range(len(entries), recipe.epochs):
        started = CLOCK.now()
        result = loop.epoch(number, lambda step, steps: report({"step": step, "steps": steps}))
        taken = CLOCK.now() - started
        seconds += taken
        if result.stopped:
            reason = f"stopped on request in epoch {number + 1}{of}"
            return TrainingLog(tuple(entries), seconds, reason, requested=True)
        entry = {"epoch": number + 1.0, "loss": result.loss, "seconds": taken}
        entries.append(entry)
        if recipe.patience:
            entry["local_accuracy"] = between.score()
        requested = report({"epoch": number + 1, "epochs": recipe.epochs, **entry})
        if number + 1 == recipe.epochs:  # what grew after the last epoch would never train
            break
        changing = round(loop.steps.constant_until * recipe.epochs)  # epochs in which the rate waits, and patience too
        since = min(epochs_since_best(entries), number + 1 - changing)
        if recipe.patience and since >= recipe.patience:
            reason = f"no better local score{of} for {since} epochs, after epoch {number + 1}"
            return TrainingLog(tuple(entries), seconds, reason, requested=requested)
        if requested:
            reason = f"stopped on request after epoch {number + 1}{of}"
            return TrainingLog(tuple(entries), seconds, reason, requested=True)
        entry |= loop.steps.evolve(number + 1, between.room())
        seconds += entry.get("evolve_seconds", 0.0)
        between.write(entries, seconds)
    return TrainingLog(tuple(entries), seconds)


def epochs_since_best(entries: Sequence[Mapping[str, float]]) -> int:
    """Return how many scored epochs there were since the best local accuracy."""
    scores = [entry["local_accuracy"] for entry in entries if "local_accuracy" in entry]
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0
