"""One partition of a data set: labels in memory, samples read when asked for."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.arrays import Array, Doubles, Labels, RowNumbers
from tuner.errors import TaskError
from tuner.task.data.images import decode_image, fit_array, fit_pixels, read_bytes
from tuner.task.spec import InputSpec

S = TypeVar("S", bound="Samples")
ID_BYTES = 16
_GREY, _COLOUR = 3, 4  # dimensions of [n, H, W] and of [n, H, W, 3] or [n, C, H, W]


class Samples(ABC):
    """One partition.

    Attributes:
        labels: Rows of the union head: int64 [n], or multi-hot float32 [n, k] where a sample may have several labels;
            or standardised targets, float32 [n, k].
        columns: Names of the numbers of a sample, or of its channels, where a table gives any.
    """

    labels: Labels
    columns: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def load(self, index: int) -> Array:
        """Return one sample, preprocessed but not normalised: uint8 [3, size, size] or an array [C, ...]."""

    @abstractmethod
    def sample_id(self, index: int) -> str:
        """Return a hash of the sample's content alone, not of its name or place: 32 hex digits."""

    @abstractmethod
    def name(self, index: int) -> str:
        """Return the name that leads a person to the sample: a file's path, or ``"x_train[12]"``."""

    def origin(self, index: int) -> str:
        """Return the recording that the sample was cut from, or the session it was taken in; else its own name."""
        return self.name(index)

    def whole(self, index: int) -> str:
        """Return the name of what is predicted as one: the sound or recording that the sample is a part of."""
        return self.name(index)

    def at(self, spec: InputSpec) -> "Samples":
        """Return the same samples as another size of the input gives them.

        Raises:
            TaskError: They are given as they are.
        """
        raise TaskError(f"{type(self).__name__} have one size: they do not say how they are at {spec.size} px")

    def stamp(self, index: int) -> str:
        """Return what fingerprints note of each sample, cheaply: the size of its content, or a hash of it."""
        return str(self.load(index).nbytes)


class HashedSamples(Samples):
    """Samples whose content is hashed once."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._ids: dict[int, str] = {}

    def sample_id(self, index: int) -> str:
        index = range(len(self))[index]
        if index not in self._ids:
            self._ids[index] = content_id(*self._content(index))
        return self._ids[index]

    @abstractmethod
    def _content(self, index: int) -> Iterable[bytes]:
        """Return the bytes that a sample's hash is of."""


class FileSamples(HashedSamples):
    """Image files, decoded one at a time; `sessions` are those that they were taken in, where any is known."""

    def __init__(self, files: Sequence[Path], labels: Labels, spec: InputSpec, sessions: Sequence[str] = ()) -> None:
        super().__init__(labels)
        self._files, self._sessions = tuple(files), tuple(sessions)
        self._spec = spec

    def __len__(self) -> int:
        return len(self._files)

    def load(self, index: int) -> Array:
        return decode_image(self._files[index], self._spec)

    def at(self, spec: InputSpec) -> "FileSamples":
        return _with(self, _spec=spec)

    def name(self, index: int) -> str:
        return str(self._files[index])

    def origin(self, index: int) -> str:
        return self._sessions[index] if self._sessions else self.name(index)

    def _content(self, index: int) -> Iterable[bytes]:
        return (read_bytes(self._files[index]),)

    def stamp(self, index: int) -> str:
        try:
            return str(self._files[index].stat().st_size)
        except OSError as error:
            raise TaskError(f"{self._files[index]}: cannot be read ({error.strerror or error})") from error


class ArraySamples(HashedSamples):
    """Samples of one array in memory; nothing is copied until a sample is asked for.

    Args:
        array: Samples. Kind "images": uint8 [n, H, W] or [n, H, W, 1 or 3]. Kind "arrays": [n, C, ...]; [n, H, W] gets
            one channel, and uint8 [n, H, W, 1 or 3] becomes channel-first.
        labels: Labels as in `Samples`.
        spec: Kind and size.
        title: Prefix of names: ``"x_train"`` gives ``"x_train[12]"``.
        columns: As in `Samples`.
    """

    def __init__(
        self, array: Array, labels: Labels, spec: InputSpec, title: str = "x", columns: tuple[str, ...] = ()
    ) -> None:
        super().__init__(labels)
        self.columns = columns
        self._array = _pixels(array, title) if spec.kind == "images" else _channels_first(array, title)
        self._spec = spec
        self._title = title
        if spec.kind == "arrays" and spec.size is not None and self._array.ndim != _COLOUR:
            raise TaskError(f"input.size resizes [n, C, H, W], but {title} is {list(array.shape)}: leave size out")

    def __len__(self) -> int:
        return len(self._array)

    def load(self, index: int) -> Array:
        if self._spec.kind == "images":
            return fit_pixels(np.ascontiguousarray(self._array[index]), self._spec)
        if self._spec.size is not None:
            return fit_array(self._array[index], self._spec)
        return np.array(self._array[index], order="C")

    def at(self, spec: InputSpec) -> "ArraySamples":
        return _with(self, _spec=spec)

    def _content(self, index: int) -> Iterable[bytes]:
        sample = np.ascontiguousarray(self._array[index])
        return sample.tobytes(), repr((sample.shape, sample.dtype.str)).encode()

    def name(self, index: int) -> str:
        return f"{self._title}[{range(len(self))[index]}]"

    def stamp(self, index: int) -> str:
        return str(self._array[index].nbytes)


class Subset(Samples):
    """A view of other samples: ``subset[i]`` is ``samples[indices[i]]``, with its name and its id."""

    def __init__(self, samples: Samples, indices: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        self._samples = samples
        self._indices = np.asarray(indices, np.int64)
        self.labels, self.columns = samples.labels[self._indices], samples.columns

    def __len__(self) -> int:
        return len(self._indices)

    def load(self, index: int) -> Array:
        return self._samples.load(int(self._indices[index]))

    def at(self, spec: InputSpec) -> "Subset":
        return _with(self, _samples=self._samples.at(spec))

    def sample_id(self, index: int) -> str:
        return self._samples.sample_id(int(self._indices[index]))

    def name(self, index: int) -> str:
        return self._samples.name(int(self._indices[index]))

    def origin(self, index: int) -> str:
        return self._samples.origin(int(self._indices[index]))

    def whole(self, index: int) -> str:
        return self._samples.whole(int(self._indices[index]))

    def stamp(self, index: int) -> str:
        return self._samples.stamp(int(self._indices[index]))


def _with(samples: S, **changed: Any) -> S:
    """Return the samples with other attributes; the hashes of their content are shared."""
    other = copy(samples)
    vars(other).update(changed)
    return other


def with_labels(samples: Samples, labels: Labels) -> Samples:
    """Return the samples under other labels."""
    view = Subset(samples, np.arange(len(samples)))
    view.labels = labels
    return view


def wholes(samples: Samples) -> tuple[tuple[str, ...], RowNumbers]:
    """Return what is predicted as one, in order of occurrence, and which of these each sample is a part of."""
    places: dict[str, int] = {}
    numbers = [places.setdefault(samples.whole(index), len(places)) for index in range(len(samples))]
    return tuple(places), np.array(numbers, np.int64)


def mean_of_wholes(values: Array, places: RowNumbers) -> Doubles:
    """Return the means over the samples of each whole: [n, k] to float64 [wholes, k]."""
    sums = np.zeros((int(places.max()) + 1, values.shape[1]))
    np.add.at(sums, places, values)
    return sums / np.bincount(places)[:, None]


def content_id(*parts: bytes) -> str:
    """Hash content to 32 hex digits (BLAKE2b, 128 bits)."""
    digest = hashlib.blake2b(digest_size=ID_BYTES)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _pixels(array: Array, title: str) -> Array:
    if array.ndim == _COLOUR and array.shape[-1] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8 or not (array.ndim == _GREY or (array.ndim == _COLOUR and array.shape[-1] == 3)):  # noqa: PLR2004 - red, green, blue
        raise TaskError(
            f'{title} of kind "images" must be uint8 [n, H, W] or [n, H, W, 3], '
            f'got {array.dtype} {list(array.shape)}: convert it, or use kind = "arrays"'
        )
    return array


def _channels_first(array: Array, title: str) -> Array:
    if array.dtype.kind not in "buif" or array.ndim < 2:  # noqa: PLR2004 - samples and channels at least
        raise TaskError(f"{title} must be numbers [n, C, ...], got {array.dtype} {list(array.shape)}")
    if array.ndim == _GREY:
        return array[:, np.newaxis]
    is_channels_last = array.shape[-1] in {1, 3} and array.shape[1] not in {1, 3}
    if array.ndim == _COLOUR and array.dtype == np.uint8 and is_channels_last:
        return np.moveaxis(array, -1, 1)
    return array
