"""A model in segments, one for each exit: leaving early skips the rest."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.runtime.bundle import Bundle
from tuner.runtime.calibration import confidences
from tuner.runtime.session import Session

Floats = npt.NDArray[np.float32]


class Chain:
    """Segments that hand their features on. The last gives logits only; a model without exits is a chain of one.

    Args:
        paths: Of the segments' ONNX files, from the input to the final head.
        thresholds: Of confidence, one for each segment but the last.
        temperature: That logits are divided by for a confidence.
        multi: Whether a sample may have several labels.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: A segment is not a model this ONNX Runtime can run.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        thresholds: Sequence[float] = (),
        temperature: float = 1.0,
        *,
        multi: bool = False,
        threads: int | None = None,
    ) -> None:
        self.segments = [Session(path, threads) for path in paths]
        self._thresholds = tuple(thresholds)
        self._temperature = temperature
        self._multi = multi

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None = None) -> "Chain":
        """Open a bundle's model, in segments where it has exits.

        Raises:
            BundleError: It cannot be run.
        """
        said, multi = bundle.info.get("exits"), bundle.loss == "multi-label"
        if said is None:
            return cls([bundle.model], multi=multi, threads=threads)
        paths = [bundle.folder / name for name in said["segments"]]
        return cls(paths, said["thresholds"], said["temperature"], multi=multi, threads=threads)

    def answer(self, batch: Floats) -> tuple[int, Floats]:
        """Return the exit that one sample leaves at, and its logits.

        Args:
            batch: Normalised, float32 [1, ...].
        """
        for exit_, threshold in enumerate(self._thresholds):
            batch, logits = self.segments[exit_].outputs(batch)
            if confidences(logits, self._temperature, multi=self._multi)[0] > threshold:
                return exit_, logits[0]
        return len(self._thresholds), self.segments[-1].outputs(batch)[-1][0]

    def every(self, batch: Floats) -> Floats:
        """Return what all exits say, float32 [exits + 1, n, outputs].

        Args:
            batch: Normalised, float32 [n, ...].
        """
        found = []
        for segment in self.segments[:-1]:
            batch, logits = segment.outputs(batch)
            found.append(logits)
        return np.stack([*found, self.segments[-1].outputs(batch)[-1]])
