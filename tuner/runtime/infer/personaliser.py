"""Predict from a bundle, leaving at the first confident exit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.runtime.infer.chain import Chain
from tuner.runtime.infer.prediction import Prediction, Probabilities, Window, timeline
from tuner.targets.base import Named
from tuner.task import normalise

if TYPE_CHECKING:
    from PIL.Image import Image

#: A sample on a device: decoded, or a file.
Sample = npt.NDArray[np.generic]
SampleOrFile = str | Path | Sample
_BATCH = 64  # windows that run at once


class Personaliser:
    """A bundle, ready to predict.

    Args:
        bundle: The bundle or its folder.
        threads: Threads within an operator; all that the process may use where they are not given.
        thresholds: Threshold of every exit but the last, instead of the bundle's own.
        unknown: Whether predictions say how unlike the user's samples a sample is, and `Prediction.answer` may be
            ``unknown``.

    Attributes:
        bundle: The bundle.
        thresholds: Threshold of every exit but the last.

    Raises:
        BundleError: The bundle cannot be used.
    """

    def __init__(
        self,
        bundle: Bundle | str | Path,
        threads: int | None = None,
        thresholds: Sequence[float] | None = None,
        *,
        unknown: bool = False,
    ) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        own = self.bundle.exits.thresholds if self.bundle.exits else ()
        self.thresholds = own if thresholds is None else tuple(thresholds)
        if len(self.thresholds) != len(own):
            raise BundleError(
                f"{self.bundle.name} has {len(own)} thresholds, got {len(self.thresholds)}: give one each"
            )
        distance, self._farthest = self.bundle.distance() if unknown else (b"", math.nan)
        self._chain = Chain.of(self.bundle, threads, distance)

    @property
    def exits(self) -> int:
        """Number of exits, the model's own output included."""
        return len(self._chain)

    @overload
    def predict(self, sample: "SampleOrFile | PathLike[str] | Image") -> Prediction: ...
    @overload
    def predict(self, sample: list[Any] | tuple[Any, ...] | Iterator[Any]) -> list[Prediction]: ...
    def predict(self, sample: Any) -> Prediction | list[Prediction]:
        """Predict one sample, or each of a list.

        Args:
            sample: A file; an array of the model's input shape, as `decode_image` returns it; of images also one of
                pillow, or pixels as of a camera, uint8 [H, W] or [H, W, 3] in RGB; of signals also a whole recording.
                Or a list, a tuple or an iterator of such.

        Raises:
            TunerError: A file cannot be read, or a sample has another shape or type.
        """
        if isinstance(sample, str | PathLike):
            return self.predict_file(sample)
        if isinstance(sample, list | tuple | Iterator):
            return list[Prediction](map(self.predict, sample))
        decoded = self.bundle.kind.decoded(sample, self.bundle.spec)
        if self.bundle.kind.windowed and decoded.shape != self.bundle.input_shape:
            return self.predict_recording(decoded)
        return self.explored(decoded, explore=False)[0]

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
        row = left.every[left.exit if explore else 0]
        return self._prediction(row, left.exit, left.seconds, left.distance), left.every if explore else None

    def predict_batch(self, samples: Sample) -> list[Prediction]:
        """Predict samples [n, ...] together; after each exit, those that have not left continue as a smaller batch.

        Raises:
            BundleError: The samples have another shape or type.
        """
        exited = self._chain.leave(self._normalised(samples), self.thresholds)
        return [self._prediction(row, int(exit_), *map(float, rest)) for row, exit_, *rest in zip(*exited, strict=True)]

    def predict_recording(self, signal: Sample, name: str = "the recording") -> Prediction:
        """Predict a recording or a sound: every part by itself, then the mean of their probabilities decides.

        Args:
            signal: [channels, time], as long as a window at least; of a sound, mono at 16 kHz, [samples], or log-mel
                bands [64, frames].
            name: Name of the recording, for messages.

        Raises:
            TunerError: It is not a signal, is too short, or has other channels than the model takes.
        """
        begins, cuts = cut(signal, self.bundle, name)
        batches = [
            self._chain.leave(self._normalised(np.ascontiguousarray(cuts[at : at + _BATCH])), self.thresholds)
            for at in range(0, len(cuts), _BATCH)
        ]
        probabilities = np.concatenate([batch.probabilities for batch in batches])
        deepest = max(int(batch.exits.max()) for batch in batches)
        seconds = sum(float(batch.seconds.sum()) for batch in batches)
        distance = float(np.concatenate([batch.distances for batch in batches]).mean())
        said = self._prediction(probabilities.mean(axis=0, dtype=np.float64), deepest, seconds, distance)
        best, kind = self.bundle.targets.best, self.bundle.kind
        rows = zip(begins, probabilities, strict=True)
        windows = tuple(Window(begin, *best(row, self.bundle.labels)) for begin, row in rows)
        if not kind.timed:
            return replace(said, windows=windows)
        centres = kind.seconds(begins, self.bundle.spec)
        return replace(said, windows=windows, timeline=timeline(probabilities, centres, self._named))

    def windows(self, signal: Sample, name: str = "the recording") -> list[tuple[int, Sample]]:
        """Return the begin of each window of a recording or a sound, and the window.

        Raises:
            TunerError: As `predict_recording`.
        """
        return list(zip(*cut(signal, self.bundle, name), strict=True))

    def every_exit(self, samples: Sample) -> npt.NDArray[np.float32]:
        """Return the probabilities of each exit for samples [n, ...], float32 [exits, n, labels]."""
        return self._chain.every_answer(self._normalised(samples))

    def predict_file(self, path: str | PathLike[str]) -> Prediction:
        """Predict a file of the bundle's kind: of a recording, the mean over its windows decides.

        Raises:
            TunerError: The file is missing, or is none of this kind.
        """
        content = self.load(Path(path))
        if not self.bundle.kind.windowed:
            return self.predict(content)
        note = self.bundle.kind.note(Path(path), self.bundle.spec)
        return replace(self.predict_recording(content, str(path)), note=note)

    def load(self, path: Path) -> Sample:
        """Return the content of a file, decoded as in training; a recording is not cut into windows.

        Raises:
            TunerError: It is missing, or is none of the bundle's kind.
        """
        return self.bundle.kind.read(path, self.bundle.spec)

    def check(self, samples: Sample) -> None:
        """Check the shape and type of samples [n, ...]: a `BundleError` where they are not what the model takes."""
        if tuple(samples.shape[1:]) != self.bundle.input_shape or samples.dtype.kind not in "buif":
            raise BundleError(
                f"{self.bundle.name} takes numbers of shape {list(self.bundle.input_shape)}, "
                f"got {samples.dtype} {list(samples.shape[1:])}"
            )
        if samples.dtype.kind == "f" and not np.isfinite(samples.astype(np.float32)).all():
            raise BundleError(f"{self.bundle.name} takes finite numbers, but a sample has others: leave it out")

    def _unknown(self, distance: float) -> float | None:
        return None if math.isnan(distance) else distance / self._farthest

    def _prediction(self, row: Probabilities, exit_: int, seconds: float, distance: float = math.nan) -> Prediction:
        kind, names = self.bundle.targets, self.bundle.labels
        over, values = kind.over(row, names, self.bundle.info.label_thresholds), kind.values(row, names)
        unknown, said = self._unknown(distance), (*kind.best(row, names), exit_, seconds)
        return Prediction(*said, labels=over, values=values, unknown=unknown, names=names, outputs=row)

    def _named(self, row: Probabilities) -> Named:
        """Return what is written of a second: its labels, its values, or the most probable label."""
        said = self._prediction(row, 0, 0.0)
        return next((own for own in (said.labels, said.values) if own is not None), ((said.label, said.probability),))

    def _normalised(self, samples: Sample) -> npt.NDArray[np.float32]:
        self.check(samples)
        return normalise(samples, self.bundle.input)


def inputs(samples: Sequence[SampleOrFile], bundle: Bundle) -> Iterator[tuple[int, Sample]]:
    """Yield a sample's number and its input, not normalised; of a recording, every window.

    Args:
        samples: Files of the bundle's kind, or arrays.
        bundle: Bundle of the model that takes them.

    Raises:
        TunerError: A file cannot be read, or a sample has another shape than the model's input.
    """
    for number, sample in enumerate(samples):
        name = f"sample {number}" if isinstance(sample, np.ndarray) else str(sample)
        for array in _arrays(sample, name, bundle):
            if array.shape != bundle.input_shape:
                raise BundleError(
                    f"{bundle.name} takes samples of shape {list(bundle.input_shape)}, but {name} has "
                    f"{list(array.shape)}"
                )
            yield number, array


def _arrays(sample: SampleOrFile, name: str, bundle: Bundle) -> Sequence[Sample] | Sample:
    windowed = bundle.kind.windowed
    if isinstance(sample, np.ndarray) and (not windowed or sample.shape == bundle.input_shape):  # as a ring keeps it
        return [sample]
    content = sample if isinstance(sample, np.ndarray) else bundle.kind.read(Path(sample), bundle.spec)
    return cut(content, bundle, name)[1] if windowed else [content]


def cut(content: Sample, bundle: Bundle, name: str) -> tuple[range, Sample]:
    """Cut a recording into windows, as in training.

    Args:
        content: As `Personaliser.load` returns it; a sound also as it is heard.
        bundle: Bundle of the model that takes the windows.
        name: Name of the recording, for messages.

    Returns:
        Where the windows begin, and the windows, [n, ...]: a view where that is possible.

    Raises:
        TunerError: It is no recording, is too short, or its windows are not what the model takes.
    """
    begins, windows = bundle.kind.pieces(content, bundle.spec, name)
    if windows.shape[1:] != bundle.input_shape:
        taken, given = list(bundle.input_shape), list(windows.shape[1:])
        raise BundleError(f"{bundle.name} takes windows of shape {taken}, but those of {name} have {given}")
    return begins, windows
