"""A model as a chain of segments, each ending in an exit; a model in one piece is a chain of one.

Leaving early skips the rest: the next segment runs only on the samples that are still there. Each segment is a session
of its own. ONNX Runtime's process-wide thread pool is not used: once it exists, no session anywhere in the process may
have its own. The sessions' threads sleep while another segment runs, which comes to the same: one pool is awake.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.session import FEATURES, LOGITS, Floats, Session

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """Where and with what each sample of a batch left the chain.

    Attributes:
        logits: float32 [n, labels], of the exit that the sample left at.
        exits: int64 [n].
        seconds: float64 [n]: the sample's part of the time of each segment it went through.
    """

    logits: Floats
    exits: npt.NDArray[np.int64]
    seconds: Doubles


class Chain:
    """A bundle's segments, ready to run.

    Args:
        bundle: Whose files are opened.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: A file is not a model this ONNX Runtime can run, or not a segment.
    """

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        paths = bundle.models
        self._sessions = [Session(path, threads) for path in paths]
        for path, session in zip(paths, self._sessions, strict=True):
            lacking = ({LOGITS} if path == paths[-1] else {FEATURES, LOGITS}) - set(session.outputs)
            if lacking:
                raise BundleError(f"{path} has outputs {list(session.outputs)}, but no {min(lacking)}: export again")
        self._multi = bundle.loss == "multi-label"
        self._temperature = bundle.exits.temperature if bundle.exits else 1.0
        self._labels = len(bundle.labels)

    def __len__(self) -> int:
        return len(self._sessions)

    def leave(self, batch: Floats, thresholds: Sequence[float]) -> Left:
        """Run a batch; each sample leaves at the first exit whose confidence is above its threshold, else at the last.

        Args:
            batch: float32 [n, ...], normalised.
            thresholds: Of every exit but the last.

        Raises:
            BundleError: A segment cannot compute it.
        """
        count = len(batch)
        left = Left(np.empty((count, self._labels), np.float32), np.zeros(count, np.int64), np.zeros(count))
        rows, carried, spent = np.arange(count), batch, 0.0
        for index in range(len(self) if count else 0):
            started = time.perf_counter()
            following, logits = self._step(index, carried)
            stays = self._stay(index, logits, thresholds)
            spent += (time.perf_counter() - started) / len(rows)
            if stays is None:
                carried = following
                continue
            gone = rows[~stays]
            left.logits[gone], left.exits[gone], left.seconds[gone] = logits[~stays], index, spent
            rows, carried = rows[stays], following[stays]
            if not len(rows):
                break
        return left

    def every(self, batch: Floats) -> Doubles:
        """Return what each exit says of a batch: probabilities, float64 [exits, n, labels].

        Raises:
            BundleError: A segment cannot compute it.
        """
        found, carried = [], batch
        for index in range(len(self)):
            carried, logits = self._step(index, carried)
            found.append(self.probabilities(logits))
        return np.stack(found)

    def probabilities(self, logits: Floats) -> Doubles:
        """Return an exit's logits [n, labels] as probabilities, at the bundle's temperature."""
        return probabilities(logits / self._temperature, multi=self._multi)

    def _step(self, index: int, carried: Floats) -> tuple[Floats, Floats]:
        """Run one segment: what it carries on (the last: its logits), and logits [n, labels]."""
        last = index == len(self) - 1
        *following, logits = self._sessions[index].run(carried, *(() if last else (FEATURES,)), LOGITS)
        if logits.shape != (len(carried), self._labels):
            raise BundleError(
                f"segment {index} gives logits of shape {list(logits.shape)} for {len(carried)} samples and "
                f"{self._labels} labels: export again"
            )
        return (logits if last else following[0]), logits

    def _stay(self, index: int, logits: Floats, thresholds: Sequence[float]) -> npt.NDArray[np.bool_] | None:
        """Return which rows do not leave at an exit; None where all of them stay."""
        if index == len(self) - 1:
            return np.zeros(len(logits), bool)
        if thresholds[index] >= 1:  # no confidence is above it
            return None
        stays = confidence(logits / self._temperature, multi=self._multi) <= thresholds[index]
        return None if stays.all() else stays


def probabilities(logits: Floats, *, multi: bool) -> Doubles:
    """Return softmax of logits [n, labels], or a sigmoid where a sample may have several labels."""
    wide = logits.astype(np.float64)
    if multi:
        return np.asarray(1 / (1 + np.exp(-wide)))
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def confidence(logits: Floats, *, multi: bool) -> Doubles:
    """Return how sure each row is: its largest probability; with several labels, the mean of max(p, 1 − p).

    Source: PersEPhonEE, section 3.3, for the first.
    """
    if multi:
        return np.asarray((1 / (1 + np.exp(-np.abs(logits.astype(np.float64))))).mean(axis=1))
    return np.asarray(1 / np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64).sum(axis=1))
