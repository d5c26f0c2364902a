"""Predict from a bundle."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.session import Session
from tuner.task import cut, decode_image, normalise, read_npy, window_begins

_BATCH = 64  # windows that run at once


@dataclass(frozen=True, slots=True)
class Window:
    """What the model says of one window of a recording.

    Attributes:
        begin: First sample of the window.
        label: The most probable one.
        probability: Of that label.
    """

    begin: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of one sample.

    Attributes:
        label: The most probable one.
        probability: Of that label: softmax, or sigmoid where a sample may have several.
        exit: Index of the exit the sample left at; the last one is the model's own output.
        seconds: The model took for it.
        windows: Of a recording: what each window says by itself; their probabilities' means decide.
    """

    label: str
    probability: float
    exit: int
    seconds: float
    windows: tuple[Window, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types; ``windows`` of a recording only."""
        content = asdict(self)
        if not self.windows:
            del content["windows"]
        return content


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
        self._session = Session(self.bundle.model, threads)

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
        label, probability = self._best(self._probabilities(sample[None])[0])
        return Prediction(label, probability, 0, time.perf_counter() - started)

    def predict_recording(self, signal: npt.NDArray[np.generic], name: str = "the recording") -> Prediction:
        """Predict a recording: every window by itself, then the label whose mean probability is highest.

        Args:
            signal: [channels, time], as long as a window at least.
            name: For messages.

        Raises:
            TunerError: It is no signal, too short, or has other channels than the model takes.
        """
        spec, (channels, length) = self.bundle.input, self.bundle.input_shape
        spec = replace(spec, window=length)
        windows = cut(signal, spec, name)
        if windows.shape[1] != channels:
            raise BundleError(f"{self.bundle.name} takes {channels} channels, but {name} has {windows.shape[1]}")
        started = time.perf_counter()
        parts = [self._probabilities(windows[at : at + _BATCH]) for at in range(0, len(windows), _BATCH)]
        probabilities = np.concatenate(parts)
        label, probability = self._best(probabilities.mean(axis=0))
        seconds = time.perf_counter() - started
        begins = window_begins(signal.shape[1], spec)
        said = tuple(Window(begin, *self._best(one)) for begin, one in zip(begins, probabilities, strict=True))
        return Prediction(label, probability, 0, seconds, said)

    def predict_file(self, path: str | Path) -> Prediction:
        """Predict an image file, or a ``.npy`` file: an array, or for a model of signals a recording [channels, time].

        Raises:
            TunerError: The file is none of these.
        """
        sample = self.load(Path(path))
        if self.bundle.input.kind == "signals":
            return self.predict_recording(sample, str(path))
        return self.predict(sample)

    def predict_files(self, paths: Sequence[str | Path]) -> list[Prediction]:
        """Predict several files, one after the other."""
        return [self.predict_file(path) for path in paths]

    def load(self, path: Path) -> npt.NDArray[np.generic]:
        """Return a file as the sample the model was trained on; of a recording, the whole of it.

        Raises:
            TunerError: It is missing, or not an image or array.
        """
        if self.bundle.input.kind == "images":
            return decode_image(path, self.bundle.input)
        array: npt.NDArray[np.generic] = read_npy(path)
        return array

    def _probabilities(self, batch: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """Return float64 [n, labels] of samples [n, ...]."""
        outputs = self._session.logits(normalise(batch, self.bundle.input)).astype(np.float64)
        if self.bundle.loss == "multi-label":
            return 1 / (1 + np.exp(-outputs))
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        probabilities: npt.NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
        return probabilities

    def _best(self, probabilities: npt.NDArray[np.float64]) -> tuple[str, float]:
        best = int(probabilities.argmax())
        return self.bundle.labels[best], float(probabilities[best])
