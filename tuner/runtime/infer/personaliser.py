"""Predict from a bundle, leaving at the first confident exit."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.runtime.infer.chain import Chain
from tuner.task import cut_windows, decode_image, normalise, read_npy, window_begins

Sample = npt.NDArray[np.generic]
_BATCH = 64  # windows that run at once


@dataclass(frozen=True, slots=True)
class Window:
    """Prediction for one window of a recording.

    Attributes:
        begin: Position of the window's first sample.
        label: Most probable label.
        probability: Probability of that label.
    """

    begin: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for one sample.

    Attributes:
        label: Most probable label.
        probability: Probability of that label: softmax, or sigmoid where a sample may have several.
        exit: Index of the exit that the sample left at; the last is the model's own output. For a recording, the
            deepest exit that a window left at.
        seconds: Time that the model took, shared equally in a batch.
        windows: Predictions for the windows of a recording; the mean of their probabilities decides.
    """

    label: str
    probability: float
    exit: int
    seconds: float
    windows: tuple[Window, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types; ``windows`` for a recording only."""
        content = asdict(self)
        if not self.windows:
            del content["windows"]
        return content


class Personaliser:
    """A bundle, ready to predict.

    Args:
        bundle: The bundle or its folder.
        threads: Threads within an operator; all that the process may use where they are not given.
        thresholds: Threshold of every exit but the last, instead of the bundle's own.

    Attributes:
        bundle: The bundle.
        thresholds: Threshold of every exit but the last.

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
            raise BundleError(
                f"{self.bundle.name} has {len(own)} thresholds, got {len(self.thresholds)}: give one each"
            )
        self._chain = Chain.of(self.bundle, threads)

    @property
    def exits(self) -> int:
        """Number of exits, the model's own output included."""
        return len(self._chain)

    def predict(self, sample: Sample) -> Prediction:
        """Predict one sample, as `decode_image` returns it or as an array of the model's input shape.

        Raises:
            BundleError: The sample has another shape or type.
        """
        return self.explored(sample, explore=False)[0]

    def explored(self, sample: Sample, *, explore: bool) -> tuple[Prediction, npt.NDArray[np.float32] | None]:
        """Predict one sample, and if so wanted run the exits after the one that it leaves at, too: once, all in all.

        Args:
            sample: As for `predict`.
            explore: Whether all exits run; nothing changes where there is one.

        Returns:
            The prediction; and the probabilities of all exits, float32 [exits, labels], where all of several have run.

        Raises:
            BundleError: The sample has another shape or type.
        """
        explore = explore and self.exits > 1
        left = self._chain.leave_alone(self._normalised(sample[None]), self.thresholds, explore=explore)
        prediction = Prediction(self.bundle.labels[left.label], left.probability, left.exit, left.seconds)
        return prediction, left.every if explore else None

    def predict_batch(self, samples: Sample) -> list[Prediction]:
        """Predict samples [n, ...] together; after each exit, those that have not left continue as a smaller batch.

        Raises:
            BundleError: The samples have another shape or type.
        """
        exited = self._chain.leave(self._normalised(samples), self.thresholds)
        return [
            Prediction(*self._best(row), int(exit_), float(seconds))
            for row, exit_, seconds in zip(*exited, strict=True)
        ]

    def predict_recording(self, signal: Sample, name: str = "the recording") -> Prediction:
        """Predict a recording: every window by itself, then the label whose mean probability is highest.

        Args:
            signal: [channels, time], as long as a window at least.
            name: Name of the recording, for messages.

        Raises:
            TunerError: It is not a signal, is too short, or has other channels than the model takes.
        """
        begins, cuts = zip(*self.windows(signal, name), strict=True)
        batches = [
            self._chain.leave(self._normalised(np.stack(cuts[at : at + _BATCH])), self.thresholds)
            for at in range(0, len(cuts), _BATCH)
        ]
        probabilities = np.concatenate([batch.probabilities for batch in batches])
        return Prediction(
            *self._best(probabilities.mean(axis=0, dtype=np.float64)),
            max(int(batch.exits.max()) for batch in batches),
            sum(float(batch.seconds.sum()) for batch in batches),
            tuple(Window(begin, *self._best(row)) for begin, row in zip(begins, probabilities, strict=True)),
        )

    def windows(self, signal: Sample, name: str = "the recording") -> list[tuple[int, Sample]]:
        """Return the begin of each window of a recording [channels, time], and the window.

        Raises:
            TunerError: As `predict_recording`.
        """
        channels, length = self.bundle.input_shape
        spec = replace(self.bundle.input, window=length)
        windows = cut_windows(signal, spec, name)
        if windows.shape[1] != channels:
            raise BundleError(f"{self.bundle.name} takes {channels} channels, but {name} has {windows.shape[1]}")
        return list(zip(window_begins(signal.shape[1], spec), windows, strict=True))

    def every_exit(self, samples: Sample) -> npt.NDArray[np.float32]:
        """Return the probabilities of each exit for samples [n, ...], float32 [exits, n, labels].

        Raises:
            BundleError: The samples have another shape or type, or a segment fails.
        """
        return self._chain.every_answer(self._normalised(samples))

    def predict_file(self, path: str | Path) -> Prediction:
        """Predict an image file, or a ``.npy`` file: an array, or for a model of signals a recording [channels, time].

        Raises:
            TunerError: The file is missing, or is not one of these.
        """
        sample = self.load(Path(path))
        if self.bundle.input.kind == "signals":
            return self.predict_recording(sample, str(path))
        return self.predict(sample)

    def predict_files(self, paths: Sequence[str | Path]) -> list[Prediction]:
        """Predict several files, one after the other."""
        return [self.predict_file(path) for path in paths]

    def load(self, path: Path) -> Sample:
        """Return the content of a file, decoded as in training; a recording is not cut into windows.

        Raises:
            TunerError: It is missing, or not an image or an array.
        """
        if self.bundle.input.kind == "images":
            return decode_image(path, self.bundle.input)
        array: Sample = read_npy(path)
        return array

    def check(self, samples: Sample) -> None:
        """Check the shape and type of samples [n, ...].

        Raises:
            BundleError: They are not what the model takes.
        """
        if tuple(samples.shape[1:]) != self.bundle.input_shape or samples.dtype.kind not in "buif":
            raise BundleError(
                f"{self.bundle.name} takes numbers of shape {list(self.bundle.input_shape)}, "
                f"got {samples.dtype} {list(samples.shape[1:])}"
            )
        if samples.dtype.kind == "f" and not np.isfinite(samples.astype(np.float32)).all():
            raise BundleError(f"{self.bundle.name} takes finite numbers, but a sample has others: leave it out")

    def _best(self, probabilities: npt.NDArray[np.floating]) -> tuple[str, float]:
        """Return the most probable label and its probability."""
        best = int(probabilities.argmax())
        return self.bundle.labels[best], float(probabilities[best])

    def _normalised(self, samples: Sample) -> npt.NDArray[np.float32]:
        self.check(samples)
        return normalise(samples, self.bundle.input)
