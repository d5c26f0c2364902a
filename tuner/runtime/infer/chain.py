"""A model as a chain of segments, each ending in an exit; a model in one piece is a chain of one.

A sample that leaves early skips the rest: the next segment runs only on the samples that continue. Each segment is a
session of its own. ONNX Runtime's process-wide thread pool is not used: once it exists, no session anywhere in the
process may have its own. A session's threads sleep while another segment runs, so that one pool at a time is awake.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.arrays import Doubles, Floats
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.runtime.infer.calibration import confidences


@dataclass(frozen=True, slots=True, eq=False)
class ExitedBatch:
    """A batch after every sample has left the chain.

    Attributes:
        logits: Logits of the exit that each sample left at, float32 [n, labels].
        exits: Index of that exit, int64 [n].
        seconds: Time of the segments that a sample went through, shared equally in a batch, float64 [n].
    """

    logits: Floats
    exits: npt.NDArray[np.int64]
    seconds: Doubles


class Chain:
    """Segments, ready to run.

    Args:
        paths: ONNX files of the segments, in order.
        labels: Number of labels; a segment with another number of logits raises an error when it runs.
        temperature: Divisor of the logits.
        multi: Whether a sample may have several labels.
        threads: Threads within an operator; all that the process may use where they are not given.

    Raises:
        BundleError: A file is not a model that this ONNX Runtime can run, or not a segment.
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
            missing = ({LOGITS} if path == paths[-1] else {FEATURES, LOGITS}) - set(session.outputs)
            if missing:
                raise BundleError(f"{path} has outputs {list(session.outputs)}, but no {min(missing)}: export again")
        self._multi, self._temperature, self._labels = multi, temperature, labels

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None = None) -> "Chain":
        """Open a bundle's files.

        Raises:
            BundleError: As for the class.
        """
        temperature = bundle.exits.temperature if bundle.exits else 1.0
        multi = bundle.loss == "multi-label"
        return cls(bundle.models, len(bundle.labels), temperature, multi=multi, threads=threads)

    def __len__(self) -> int:
        return len(self._sessions)

    def leave(self, batch: Floats, thresholds: Sequence[float]) -> ExitedBatch:
        """Run a batch; each sample leaves at the first exit whose confidence is above its threshold, else at the last.

        Args:
            batch: float32 [n, ...], normalised.
            thresholds: Threshold of every exit but the last.

        Raises:
            BundleError: A segment cannot compute it.
        """
        count = len(batch)
        exited = ExitedBatch(np.empty((count, self._labels), np.float32), np.zeros(count, np.int64), np.zeros(count))
        rows, features, spent = np.arange(count), batch, 0.0
        for index in range(len(self) if count else 0):
            started = time.perf_counter()
            outputs, logits = self.step(index, features)
            stays = self._stay(index, logits, thresholds)
            spent += (time.perf_counter() - started) / len(rows)
            if stays is None:
                features = outputs
                continue
            leaving = rows[~stays]
            exited.logits[leaving] = logits[~stays]
            exited.exits[leaving] = index
            exited.seconds[leaving] = spent
            rows, features = rows[stays], outputs[stays]
            if not len(rows):
                break
        return exited

    def every(self, batch: Floats) -> Floats:
        """Return the logits of each exit for a batch, float32 [exits, n, labels].

        Raises:
            BundleError: A segment cannot compute it.
        """
        parts, features = [], batch
        for index in range(len(self)):
            features, logits = self.step(index, features)
            parts.append(logits)
        return np.stack(parts)

    def probabilities(self, logits: Floats) -> Doubles:
        """Return logits [..., labels] as probabilities, at the chain's temperature."""
        return probabilities(logits / self._temperature, multi=self._multi)

    def step(self, index: int, features: Floats) -> tuple[Floats, Floats]:
        """Run one segment on the features that the one before it returned.

        Args:
            index: Number of the segment.
            features: float32 [n, ...]; of the first segment, a normalised batch.

        Returns:
            Features for the next segment, and logits [n, labels]; of the last segment, the logits twice.

        Raises:
            BundleError: The segment cannot compute this.
        """
        last = index == len(self) - 1
        *outputs, logits = self._sessions[index].run(features, *(() if last else (FEATURES,)), LOGITS)
        if logits.shape != (len(features), self._labels):
            raise BundleError(
                f"segment {index} gives logits of shape {list(logits.shape)} for {len(features)} samples and "
                f"{self._labels} labels: export again"
            )
        if np.isnan(logits).any():
            raise BundleError(f"segment {index} gives logits that are not numbers: export again")
        return (logits if last else outputs[0]), logits

    def _stay(self, index: int, logits: Floats, thresholds: Sequence[float]) -> npt.NDArray[np.bool_] | None:
        """Return the rows that do not leave at an exit, bool [n]; None where all of them stay."""
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
