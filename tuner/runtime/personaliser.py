"""Predict from a bundle, leaving at the first confident exit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.chain import Chain
from tuner.task.images import decode_image, normalise

Sample = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of one sample.

    Attributes:
        label: The most probable one.
        probability: Of that label: softmax, or sigmoid where a sample may have several.
        exit: Index of the exit the sample left at; the last one is the model's own output.
        seconds: The model took for it; of a batch, the sample's part.
    """

    label: str
    probability: float
    exit: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types."""
        return asdict(self)


class Personaliser:
    """A bundle, ready to answer.

    Args:
        bundle: The bundle or its folder.
        threads: Within an operator; all the process may use where it is not given.
        thresholds: Of every exit but the last, where these are not the bundle's own.

    Raises:
        BundleError: The bundle cannot be used.
    """

    def __init__(
        self, bundle: Bundle | str | Path, threads: int | None = None, thresholds: Sequence[float] | None = None
    ) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        own = self.bundle.exits.thresholds if self.bundle.exits else ()
        self.thresholds = own if thresholds is None else tuple(thresholds)
        if len(self.thresholds) != len(own):
            raise BundleError(f"{self.bundle.name} wants {len(own)} thresholds, but {len(self.thresholds)} are given")
        self._chain = Chain(self.bundle, threads)

    @property
    def exits(self) -> int:
        """How many exits there are, the model's own output included."""
        return len(self._chain)

    def predict(self, sample: Sample) -> Prediction:
        """Predict one sample, as `decode_image` returns it or as an array of the model's input shape.

        Raises:
            BundleError: The shape is another one.
        """
        return self.predict_batch(sample[None])[0]

    def predict_batch(self, samples: Sample) -> list[Prediction]:
        """Predict samples [n, ...] together; after each exit, those that are left go on as a smaller batch.

        Raises:
            BundleError: The shape is another one.
        """
        left = self._chain.leave(self._normalised(samples), self.thresholds)
        found = self._chain.probabilities(left.logits)
        best = found.argmax(axis=1)
        return [
            Prediction(self.bundle.labels[label], float(row[label]), int(exit_), float(seconds))
            for label, row, exit_, seconds in zip(best, found, left.exits, left.seconds, strict=True)
        ]

    def every_exit(self, samples: Sample) -> npt.NDArray[np.float64]:
        """Return what each exit says of samples [n, ...]: probabilities, float64 [exits, n, labels].

        Raises:
            BundleError: The shape is another one, or a segment fails.
        """
        return self._chain.every(self._normalised(samples))

    def predict_file(self, path: str | Path) -> Prediction:
        """Predict an image file, or an array file (``.npy``) for a model of arrays.

        Raises:
            TunerError: The file is neither.
        """
        return self.predict(self.load(Path(path)))

    def predict_files(self, paths: Sequence[str | Path]) -> list[Prediction]:
        """Predict several files, one after the other."""
        return [self.predict_file(path) for path in paths]

    def load(self, path: Path) -> Sample:
        """Return a file as the sample the model was trained on.

        Raises:
            TunerError: It is missing, or not an image or array.
        """
        if self.bundle.input.kind == "images":
            return decode_image(path, self.bundle.input)
        try:
            array: Sample = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BundleError(f"{path} is not a .npy array, which {self.bundle.name} takes: {error}") from None
        return array

    def check(self, samples: Sample) -> None:
        """Look at the shape and type of samples [n, ...].

        Raises:
            BundleError: They are not what the model takes.
        """
        if tuple(samples.shape[1:]) != self.bundle.input_shape or samples.dtype.kind not in "buif":
            raise BundleError(
                f"{self.bundle.name} takes numbers of shape {list(self.bundle.input_shape)}, "
                f"but this is {samples.dtype} {list(samples.shape[1:])}"
            )

    def _normalised(self, samples: Sample) -> npt.NDArray[np.float32]:
        self.check(samples)
        return normalise(samples, self.bundle.input)
