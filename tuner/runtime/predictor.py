"""Predict from a bundle."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.chain import Chain
from tuner.task import decode_image, normalise


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of one sample.

    Attributes:
        label: The most probable one.
        probability: Of that label: softmax, or sigmoid where a sample may have several.
        exit: Index of the exit the sample left at; the last one is the model's own output.
        seconds: The model took for it.
    """

    label: str
    probability: float
    exit: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types."""
        return asdict(self)


class Predictor:
    """A bundle, ready to answer.

    Args:
        bundle: The bundle or its folder.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: The bundle cannot be used.
    """

    def __init__(self, bundle: Bundle | str | Path, threads: int | None = None) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        self._chain = Chain.of(self.bundle, threads)

    def predict(self, sample: npt.NDArray[np.generic]) -> Prediction:
        """Predict one sample, as `decode_image` returns it or as an array of the model's input shape.

        Raises:
            BundleError: The shape is another one.
        """
        if tuple(sample.shape) != self.bundle.input_shape:
            raise BundleError(
                f"{self.bundle.name} takes samples of shape {list(self.bundle.input_shape)}, "
                f"but this is {list(sample.shape)}"
            )
        started = time.perf_counter()
        exit_, logits = self._chain.answer(normalise(sample[None], self.bundle.input))
        outputs = logits.astype(np.float64)
        if self.bundle.loss == "multi-label":
            probabilities = 1 / (1 + np.exp(-outputs))
        else:
            powers = np.exp(outputs - outputs.max())
            probabilities = powers / powers.sum()
        best = int(probabilities.argmax())
        seconds = time.perf_counter() - started
        return Prediction(self.bundle.labels[best], float(probabilities[best]), exit_, seconds)

    def predict_file(self, path: str | Path) -> Prediction:
        """Predict an image file, or an array file (``.npy``) for a model of arrays.

        Raises:
            TunerError: The file is neither.
        """
        return self.predict(self.load(Path(path)))

    def predict_files(self, paths: Sequence[str | Path]) -> list[Prediction]:
        """Predict several files, one after the other."""
        return [self.predict_file(path) for path in paths]

    def load(self, path: Path) -> npt.NDArray[np.generic]:
        """Return a file as the sample the model was trained on.

        Raises:
            TunerError: It is missing, or not an image or array.
        """
        if self.bundle.input.kind == "images":
            return decode_image(path, self.bundle.input)
        try:
            array: npt.NDArray[np.generic] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BundleError(f"{path} is not a .npy array, which {self.bundle.name} takes: {error}") from None
        return array
