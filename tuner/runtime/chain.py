"""A model as a chain of segments, each ending in an exit; a model in one piece is a chain of one.

Leaving early skips the rest: the next segment runs only on the samples that are still there. Each segment is a session
of its own. ONNX Runtime's process-wide thread pool is not used: once it exists, no session anywhere in the process may
have its own. The sessions' threads sleep while another segment runs, which comes to the same: one pool is awake.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.calibration import confidences
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
    """Segments, ready to run.

    Args:
        paths: Of the segments' ONNX files, in order.
        labels: How many there are; a segment with other logits is told as it runs.
        temperature: That logits are divided by.
        multi: Whether a sample may have several labels.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: A file is not a model this ONNX Runtime can run, or not a segment.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        labels: int,
        temperature: float = 1.0,
        *,
        multi: bool = False,
        threads: int | None = None,
    ) -> None:
        self._sessions = [Session(path, threads) for path in paths]
        for path, session in zip(paths, self._sessions, strict=True):
            lacking = ({LOGITS} if path == paths[-1] else {FEATURES, LOGITS}) - set(session.outputs)
            if lacking:
                raise BundleError(f"{path} has outputs {list(session.outputs)}, but no {min(lacking)}: export again")
        self._multi, self._temperature, self._labels = multi, temperature, labels

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None = None) -> "Chain":
        """Open a bundle's files.

        Raises:
            BundleError: As the class.
        """
        temperature = bundle.exits.temperature if bundle.exits else 1.0
        multi = bundle.loss == "multi-label"
        return cls(bundle.models, len(bundle.labels), temperature, multi=multi, threads=threads)

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
            following, logits = self.step(index, carried)
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

    def every(self, batch: Floats) -> Floats:
        """Return what each exit says of a batch: logits, float32 [exits, n, labels].

        Raises:
            BundleError: A segment cannot compute it.
        """
        found, carried = [], batch
        for index in range(len(self)):
            carried, logits = self.step(index, carried)
            found.append(logits)
        return np.stack(found)

    def probabilities(self, logits: Floats) -> Doubles:
        """Return logits [..., labels] as probabilities, at the chain's temperature."""
        return probabilities(logits / self._temperature, multi=self._multi)

    def step(self, index: int, carried: Floats) -> tuple[Floats, Floats]:
        """Run one segment on what the one before it carries on: what it carries on itself, and logits [n, labels].

        The last carries its logits on.

        Raises:
            BundleError: It cannot compute this.
        """
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
        stays = confidences(logits, self._temperature, multi=self._multi) <= thresholds[index]
        return None if stays.all() else stays


def probabilities(logits: Floats, *, multi: bool) -> Doubles:
    """Return softmax of logits [..., labels], or a sigmoid where a sample may have several labels."""
    wide = logits.astype(np.float64)
    if multi:
        return np.asarray(1 / (1 + np.exp(-wide)))
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
