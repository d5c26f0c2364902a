"""Predict from a bundle, leaving at the first confident exit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.chain import Chain
from tuner.task import cut, decode_image, normalise, read_npy, window_begins

Sample = npt.NDArray[np.generic]
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
        exit: Index of the exit the sample left at; the last one is the model's own output. Of a recording, the
            deepest that a window left at.
        seconds: The model took for it; of a batch, the sample's part.
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
        self._chain = Chain.of(self.bundle, threads)

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
        return [
            Prediction(*self._best(row), int(exit_), float(seconds))
            for row, exit_, seconds in zip(found, left.exits, left.seconds, strict=True)
        ]

    def predict_recording(self, signal: Sample, name: str = "the recording") -> Prediction:
        """Predict a recording: every window by itself, then the label whose mean probability is highest.

        Args:
            signal: [channels, time], as long as a window at least.
            name: For messages.

        Raises:
            TunerError: It is no signal, too short, or has other channels than the model takes.
        """
        begins, parts_of = zip(*self.windows(signal, name), strict=True)
        windows = np.stack(parts_of)
        parts = [
            self._chain.leave(self._normalised(windows[at : at + _BATCH]), self.thresholds)
            for at in range(0, len(windows), _BATCH)
        ]
        found = self._chain.probabilities(np.concatenate([one.logits for one in parts]))
        said = [self._best(row) for row in found]
        return Prediction(
            *self._best(found.mean(axis=0)),
            max(int(one.exits.max()) for one in parts),
            sum(float(one.seconds.sum()) for one in parts),
            tuple(Window(begin, *one) for begin, one in zip(begins, said, strict=True)),
        )

    def windows(self, signal: Sample, name: str = "the recording") -> list[tuple[int, Sample]]:
        """Return where each window of a recording [channels, time] begins, and the window.

        Raises:
            TunerError: As `predict_recording`.
        """
        channels, length = self.bundle.input_shape
        spec = replace(self.bundle.input, window=length)
        found = cut(signal, spec, name)
        if found.shape[1] != channels:
            raise BundleError(f"{self.bundle.name} takes {channels} channels, but {name} has {found.shape[1]}")
        return list(zip(window_begins(signal.shape[1], spec), found, strict=True))

    def every_exit(self, samples: Sample) -> npt.NDArray[np.float64]:
        """Return what each exit says of samples [n, ...]: probabilities, float64 [exits, n, labels].

        Raises:
            BundleError: The shape is another one, or a segment fails.
        """
        return self._chain.probabilities(self._chain.every(self._normalised(samples)))

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

    def load(self, path: Path) -> Sample:
        """Return a file as the sample the model was trained on; of a recording, the whole of it.

        Raises:
            TunerError: It is missing, or not an image or array.
        """
        if self.bundle.input.kind == "images":
            return decode_image(path, self.bundle.input)
        array: Sample = read_npy(path)
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

    def _best(self, probabilities: npt.NDArray[np.float64]) -> tuple[str, float]:
        best = int(probabilities.argmax())
        return self.bundle.labels[best], float(probabilities[best])

    def _normalised(self, samples: Sample) -> npt.NDArray[np.float32]:
        self.check(samples)
        return normalise(samples, self.bundle.input)
