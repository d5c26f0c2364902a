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
from tuner.runtime.session import Floats, Session

FEATURES, LOGITS = "features", "logits"
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """Where and with what each sample of a batch left the chain.

    Attributes:
        probabilities: float64 [n, labels], of the exit that the sample left at.
        exits: int64 [n].
        seconds: float64 [n]: the sample's part of the time of each segment it went through.
    """

    probabilities: Doubles
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
        self._sessions = [Session(path, threads, patient=len(paths) > 1) for path in paths]
        for path, session in zip(paths[:-1], self._sessions, strict=False):
            if set(session.outputs) != {FEATURES, LOGITS}:
                raise BundleError(f"{path} has outputs {list(session.outputs)}, not {FEATURES} and {LOGITS}")
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
        left = Left(np.empty((count, self._labels)), np.zeros(count, np.int64), np.zeros(count))
        rows, carried = np.arange(count), batch
        for index in range(len(self)):
            if not len(rows):
                break
            started = time.perf_counter()
            following, found = self._step(index, carried)
            stays = (
                np.zeros(len(rows), bool)
                if index == len(self) - 1
                else confidence(found, multi=self._multi) <= thresholds[index]
            )
            left.probabilities[rows] = found
            left.exits[rows] = index
            left.seconds[rows] += (time.perf_counter() - started) / len(rows)
            if stays.all():
                carried = following
            else:
                rows, carried = rows[stays], following[stays]
        return left

    def every(self, batch: Floats) -> Doubles:
        """Return what each exit says of a batch: float64 [exits, n, labels].

        Raises:
            BundleError: A segment cannot compute it.
        """
        found, carried = [], batch
        for index in range(len(self)):
            carried, probabilities = self._step(index, carried)
            found.append(probabilities)
        return np.stack(found)

    def _step(self, index: int, carried: Floats) -> tuple[Floats, Doubles]:
        """Run one segment: what it carries on (the last: its logits), and probabilities."""
        session = self._sessions[index]
        outputs = dict(zip(session.outputs, session.run(carried), strict=True))
        logits = outputs[LOGITS] if LOGITS in outputs else next(iter(outputs.values()))
        if logits.shape != (len(carried), self._labels):
            raise BundleError(
                f"segment {index} gives logits of shape {list(logits.shape)} for {len(carried)} samples and "
                f"{self._labels} labels: export again"
            )
        found = probabilities(logits.astype(np.float64) / self._temperature, multi=self._multi)
        return outputs.get(FEATURES, logits), found


def probabilities(logits: Doubles, *, multi: bool) -> Doubles:
    """Return softmax of logits [n, labels], or a sigmoid where a sample may have several labels."""
    if multi:
        return np.asarray(1 / (1 + np.exp(-logits)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def confidence(found: Doubles, *, multi: bool) -> Doubles:
    """Return how sure each row of probabilities [n, labels] is: the largest; with several labels, mean max(p, 1 − p).

    Source: PersEPhonEE, section 3.3, for the first.
    """
    return np.asarray(np.maximum(found, 1 - found).mean(axis=1) if multi else found.max(axis=1))
