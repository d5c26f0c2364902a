"""The compete-decay model: how much a layer still has to gain, by epoch and by width.

The papers' epoch is a period here: as many of the trial's epochs as a decision needs (`tuner_growth.periods`).

Source: MDLdroidLite, "growth model" (growth score, DS, DG, triplet array) and its journal version (reverse update).
Where the papers are silent, the decision and its reason are at the place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tuner_growth.decay import Decay, fits

WINDOW = 5
#: Epochs that are remembered of each width.
MOST_EPOCHS = 5
#: Scores kept of an epoch: neighbouring windows are averaged, so that a long epoch costs no more than a short one.
MOST_SCORES = 8
TRIPLET = 3
#: Factor of cosines before they are fitted.
SCALE = 100.0


@dataclass(frozen=True, slots=True)
class EpochScores:
    """Growth scores of one layer in one epoch, in order; times `SCALE`."""

    epoch: int
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the scores."""
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True, slots=True)
class WidthScores:
    """Scores of one width in its latest epochs, oldest first."""

    width: int
    epochs: tuple[EpochScores, ...]


#: The latest `TRIPLET` widths of one layer, narrowest (oldest) first.
History = tuple[WidthScores, ...]


def growth_scores(saliency: Sequence[float], losses: Sequence[float]) -> tuple[float, ...]:
    """Return ``100·cos(S, L)`` of each window of `WINDOW` consecutive batches.

    A shorter rest is dropped; an epoch of fewer batches is one window. Beyond `MOST_SCORES` windows, neighbours are
    averaged.

    Args:
        saliency: Σ|∂L/∂W ⊙ W| of a layer in every batch.
        losses: Loss of every batch.
    """
    size = min(WINDOW, len(losses))
    count = len(losses) // size
    s = np.asarray(saliency[: count * size], np.float64).reshape(count, size)
    loss = np.asarray(losses[: count * size], np.float64).reshape(count, size)
    norms = np.linalg.norm(s, axis=1) * np.linalg.norm(loss, axis=1)
    cosines = SCALE * np.where(norms > 0, (s * loss).sum(axis=1) / np.where(norms > 0, norms, 1), 0)
    if count <= MOST_SCORES:
        return tuple(cosines.tolist())
    return tuple(float(part.mean()) for part in np.array_split(cosines, MOST_SCORES))


def observed(
    histories: Sequence[History], widths: Sequence[int], seen: Sequence[EpochScores], horizon: int
) -> tuple[History, ...]:
    """Return every layer's history with one more epoch at its width, and older widths updated in reverse.

    An older width õ is no longer trained, so what it would score by now is inferred from the width o after it, from the
    newest to the oldest: ``GS(t+1, õ) = min{DS(t+1, õ) / DG(t+1, o), mean GS(t, õ) / mean GS(t+1, o)} · GS(t+1, o)``.
    The ratio is kept at 1 or above: a narrower layer has no less to gain, or DG would not be a decay.

    Args:
        histories: History of every layer.
        widths: Width of every layer in the epoch.
        seen: Scores of every layer in the epoch, which is the same for all.
        horizon: Horizon of the tables that decided the last epoch; they hold this epoch's DG.
    """
    histories = tuple(histories)
    wide = [table[1] if table else None for table in tables(histories, seen[0].epoch - 1, horizon)]
    layers = zip(histories, widths, seen, wide, staying(histories), strict=True)
    return tuple(_observed(*layer) for layer in layers)


def _observed(history: History, width: int, seen: EpochScores, wide: Decay | None, stays: Sequence[Decay]) -> History:
    by_width = {scores.width: scores for scores in history}
    updated = [_with(by_width.get(width, WidthScores(width, ())), seen)]
    reference, reference_width = seen, width
    for older, stay in zip(reversed(history), reversed(stays), strict=True):
        if older.width == width:
            continue
        ratio = older.epochs[-1].mean / max(reference.mean, 1e-9)
        if wide is not None:
            ratio = min(ratio, stay.mean(seen.epoch) / max(wide.at(reference_width), 1e-9))
        reference = EpochScores(seen.epoch, tuple(max(1.0, ratio) * score for score in reference.scores))
        reference_width = older.width
        updated.append(_with(older, reference))
    return tuple(reversed(updated[:TRIPLET]))


@lru_cache(maxsize=4)  # an epoch begins with the fits that the last one ended with
def staying(histories: tuple[History, ...]) -> tuple[tuple[Decay, ...], ...]:
    """Return DS of every layer and width: how its score decays with epochs when the layer stays.

    A point lies at its own place inside its epoch, so that a width of a single epoch already has a slope.
    """
    points = [_points(scores) for history in histories for scores in history]
    decays = iter(fits(points) if points else ())
    return tuple(tuple(next(decays) for _ in history) for history in histories)


@lru_cache(maxsize=4)  # likewise
def tables(histories: tuple[History, ...], epoch: float, horizon: int) -> tuple[tuple[Decay, ...], ...]:
    """Return every layer's G-table: DG for epochs ``epoch`` … ``epoch + horizon``, `horizon` + 1 decays over width.

    DG is how the score decays with width, from three widths' DS over ``[epoch, epoch + 1)``. As many points a width as
    windows an epoch would have the mean as their least-squares pull, so the mean is taken. A layer of fewer than three
    remembered widths has an empty table.
    """
    points = [
        ([scores.width for scores in history], [stay.mean(epoch + ahead) for stay in stays])
        for history, stays in zip(histories, staying(histories), strict=True)
        for ahead in range(horizon + 1)
        if len(history) >= TRIPLET
    ]
    decays = iter(fits(points) if points else ())
    return tuple(
        tuple(next(decays) for _ in range(horizon + 1)) if len(history) >= TRIPLET else () for history in histories
    )


def _points(scores: WidthScores) -> tuple[list[float], list[float]]:
    """Return places in time and scores."""
    points = [
        (seen.epoch + (index + 0.5) / len(seen.scores), score)
        for seen in scores.epochs
        for index, score in enumerate(seen.scores)
    ]
    return [place for place, _ in points], [score for _, score in points]


def _with(scores: WidthScores, seen: EpochScores) -> WidthScores:
    """Return a width's scores with one more epoch, and without those that are too old."""
    return replace(scores, epochs=(*scores.epochs, seen)[-MOST_EPOCHS:])
