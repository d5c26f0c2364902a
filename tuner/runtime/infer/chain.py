"""A model as a chain of segments, each ending in an exit; a model in one piece is a chain of one.

A sample that leaves early skips the rest: the next segment runs only on the samples that continue. What an exit answers
and how sure it is are computed by the segment itself (`tuner.ort.answer`): numpy around it would cost more than the
nodes do. How sure one is of numbers depends on the segment before. Each segment is a session of its own. ONNX Runtime's
process-wide thread pool is not used: once it exists, no session anywhere in the process may have its own. A session's
threads sleep while another segment runs, so that one pool at a time is awake.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tuner.arrays import Doubles, Floats
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.ort.answer import ANSWER, COMPARED, DISTANCE, with_answer
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.targets import SINGLE_LABEL, Targets


class ExitedBatch(NamedTuple):
    """A batch after every sample has left the chain.

    Attributes:
        probabilities: Probabilities by the exit that each sample left at, or values, float32 [n, labels].
        exits: Index of that exit, int64 [n].
        seconds: Time of the segments that a sample went through, shared equally in a batch, float64 [n].
        distances: How unlike the user's samples each is, float64 [n]; NaN where that was not asked for.
    """

    probabilities: Floats
    exits: npt.NDArray[np.int64]
    seconds: Doubles
    distances: Doubles


class ExitedSample(NamedTuple):
    """A sample after it has left the chain.

    Attributes:
        exit: Index of the exit that it left at.
        seconds: Time of the segments up to there.
        every: Probabilities of all exits, float32 [exits, labels]; those of its own, [1, labels], where it left before
            the others ran.
        distance: How unlike the user's samples it is; NaN where that was not asked for.
    """

    exit: int
    seconds: float
    every: Floats
    distance: float


class Chain:
    """Segments, ready to run.

    Args:
        paths: ONNX files of the segments, in order.
        labels: Number of labels; a segment with another number of logits raises an error when it runs.
        temperatures: Divisor of each exit's logits; 1 where they are not given.
        kind: What a sample's label is.
        threads: Threads within an operator; all that the process may use where they are not given.
        distance: What the last segment is appended with, to give how unlike the user's samples a sample is.

    Raises:
        BundleError: A file is not a model that this ONNX Runtime can run, or not a segment; from the other methods, a
            segment cannot compute what it is given.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        labels: int,
        temperatures: Sequence[float] = (),
        *,
        kind: Targets = SINGLE_LABEL,
        threads: int | None = None,
        distance: bytes = b"",
    ) -> None:
        divisors = temperatures or (1.0,) * len(paths)
        self._sessions = [
            Session(path, threads, with_answer(path, labels, divisor, kind, distance if path == paths[-1] else b""))
            for path, divisor in zip(paths, divisors, strict=True)
        ]
        for path, session in zip(paths, self._sessions, strict=True):
            missing = ({LOGITS} if path == paths[-1] else {FEATURES, LOGITS}) - set(session.outputs)
            if missing:
                own = [name for name in session.outputs if name not in {*ANSWER, COMPARED, DISTANCE}]
                raise BundleError(f"{path} has outputs {own}, but no {min(missing)}: export again")
        self._labels, self._kind = labels, kind
        self._compares = len(self) > 1 and COMPARED in self._sessions[0].outputs
        self._measures = bool(distance)

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None = None, distance: bytes = b"") -> "Chain":
        """Open a bundle's files."""
        temperatures, labels = bundle.exits.temperatures if bundle.exits else (), len(bundle.labels)
        return cls(bundle.models, labels, temperatures, kind=bundle.targets, threads=threads, distance=distance)

    def __len__(self) -> int:
        return len(self._sessions)

    def leave_alone(self, sample: Floats, thresholds: Sequence[float], *, explore: bool = False) -> ExitedSample:
        """Run one sample up to the first exit whose confidence is above its threshold, else to the last.

        Args:
            sample: float32 [1, ...], normalised.
            thresholds: Threshold of every exit but the last.
            explore: Whether the other exits run too, after the sample has left.
        """
        features, last, seconds, left, logits = sample, len(self) - 1, 0.0, None, None
        distance = math.nan
        every = []
        for index in range(len(self)):
            started = perf_counter()
            features, of_exit, confidence, logits, far = self._answer(index, features, logits)
            seconds += perf_counter() - started
            every.append(of_exit)
            if left is None and (index == last or confidence[0, 0] > thresholds[index]):
                left = index, seconds
                distance = math.nan if far is None else far.item()
                if not explore:
                    return ExitedSample(*left, of_exit, distance)
        if left is None:
            raise BundleError("the model has no exit: export again")
        return ExitedSample(*left, np.concatenate(every), distance)

    def leave(self, batch: Floats, thresholds: Sequence[float]) -> ExitedBatch:
        """Run a batch; each sample leaves at the first exit whose confidence is above its threshold, else at the last.

        Args:
            batch: float32 [n, ...], normalised.
            thresholds: Threshold of every exit but the last.
        """
        count = len(batch)
        empty = np.empty((count, self._labels), np.float32)
        exited = ExitedBatch(empty, np.zeros(count, np.int64), np.zeros(count), np.full(count, np.nan))
        rows, features, spent, logits = np.arange(count), batch, 0.0, None
        for index in range(len(self) if count else 0):
            started = perf_counter()
            features, of_exit, confidence, logits, far = self._answer(index, features, logits)
            spent += (perf_counter() - started) / len(rows)
            last = index == len(self) - 1
            leaves = np.ones(len(rows), bool) if last else confidence[:, 0] > thresholds[index]
            leaving = rows[leaves]
            exited.probabilities[leaving] = of_exit[leaves]
            exited.exits[leaving] = index
            exited.seconds[leaving] = spent
            exited.distances[leaving] = np.nan if far is None else far[leaves, 0]
            if len(leaving) == len(rows):
                break
            if len(leaving):
                rows, features = rows[~leaves], features[~leaves]
                logits = None if logits is None else logits[~leaves]
        return exited

    def every(self, batch: Floats) -> Floats:
        """Return the logits of each exit for a batch, float32 [exits, n, labels]."""
        return self._each(batch, self.step)

    def every_answer(self, batch: Floats) -> Floats:
        """Return the probabilities of each exit for a batch, float32 [exits, n, labels]."""
        return self._each(batch, self._answer)

    def _each(self, batch: Floats, run: Callable[[int, Floats], tuple[Any, ...]]) -> Floats:
        parts, features = [], batch
        for index in range(len(self)):
            features, part, *_ = run(index, features)
            parts.append(part)
        return np.stack(parts)

    def step(self, index: int, features: Floats) -> tuple[Floats, Floats]:
        """Run one segment on the features that the one before it returned.

        Args:
            index: Number of the segment.
            features: float32 [n, ...]; of the first segment, a normalised batch.

        Returns:
            Features for the next segment, and logits [n, labels]; of the last segment, the logits twice.
        """
        last = index == len(self) - 1
        *outputs, logits = self._sessions[index].run(features, *(() if last else (FEATURES,)), LOGITS)
        self._require_shape(index, logits, len(features))
        if np.isnan(logits).any():
            raise BundleError(f"segment {index} gives logits that are not numbers: export again")
        return (logits if last else outputs[0]), logits

    def _answer(
        self, index: int, features: Floats, before: Floats | None = None
    ) -> tuple[Floats, Floats, Floats | Doubles, Floats | None, Floats | None]:
        """Run one segment on features as `step` takes them; `before` are the logits before it, where it is compared.

        Returns:
            Features for the next segment (of the last, its input); probabilities [n, labels]; confidence [n, 1]; logits
            that the next segment is compared with; and of the last segment the distances [n, 1], where asked for.
        """
        last = index == len(self) - 1
        more = *((COMPARED,) if self._compares else ()), *((DISTANCE,) if self._measures and last else ())
        outputs: list[Any] = self._sessions[index].run(features, *(() if last else (FEATURES,)), *ANSWER, *more)
        following, found, confidence, *rest = [features, *outputs] if last else outputs
        self._require_shape(index, found, len(features))
        if not (confidence[0, 0] >= 0 if len(features) == 1 else (confidence >= 0).all()):
            raise BundleError(f"segment {index} gives logits that are not numbers: export again")
        far = rest.pop() if self._measures and last else None
        if far is not None and not (far.shape == (len(features), 1) and np.isfinite(far).all()):
            raise BundleError("the distances to the user's samples are not a number a sample: export again")
        if not rest:
            return following, found, confidence, None, far
        (values,) = rest
        sure = self._kind.confidences(values[None] if before is None else np.stack([before, values]))[-1]
        return following, found, sure[:, None], values, far

    def _require_shape(self, index: int, logits: Floats, count: int) -> None:
        """Check that there are as many logits, or probabilities, as labels."""
        if logits.shape != (count, self._labels):
            raise BundleError(
                f"segment {index} gives logits of shape {list(logits.shape)} for {count} samples and "
                f"{self._labels} labels: export again"
            )
