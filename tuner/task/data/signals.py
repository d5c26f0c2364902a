"""Signals: recordings cut into windows, the same way for training and on the device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.errors import TaskError
from tuner.task.data.samples import HashedSamples, Samples
from tuner.task.spec import InputSpec

_AXES = 2  # channels and time


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One uninterrupted signal.

    Attributes:
        name: Name that leads a person to it: a file's path, or ``"myo.npz#pre/female0/training0[3]"``.
        session: Person and session, as ``"person/session"``; empty where they are unknown.
        signal: Numbers [channels, time].
        columns: Names of the channels, where a table gives any.
    """

    name: str
    session: str
    signal: Array
    columns: tuple[str, ...] = ()


def check_signal(signal: Array, spec: InputSpec, name: str) -> None:
    """Refuse an array that is no signal, is shorter than the window, or holds a value that is not finite."""
    if signal.ndim != _AXES or signal.dtype.kind not in "buif" or 0 in signal.shape:
        raise TaskError(
            f"{name}: a recording must be numbers [channels, time], got {signal.dtype} {list(signal.shape)}"
        )
    channels, length = signal.shape
    if spec.window is not None and length < spec.window:
        turned = f"if it is [time, channels] = [{channels}, {length}], transpose it; else "
        raise TaskError(
            f"{name}: the recording has {length} time steps, fewer than input.window = {spec.window}: "
            f"{turned if channels >= spec.window else ''}remove the recording or give a shorter window"
        )
    if not np.isfinite(signal).all():
        raise TaskError(f"{name}: a recording must hold finite numbers, got NaN or infinity: remove or repair it")


def check_alike(recordings: Sequence[Recording], spec: InputSpec) -> None:
    """Refuse recordings that differ in their channels, or, without `spec.window`, in their length."""
    first = recordings[0]
    for other in recordings:
        if len(other.signal) != len(first.signal):
            raise TaskError(
                f"{other.name} has {len(other.signal)} channels, {first.name} has {len(first.signal)}: "
                "recordings of one task must have the same channels"
            )
        if other.columns and first.columns and other.columns != first.columns:
            raise TaskError(
                f"{other.name} has the columns {', '.join(other.columns):.60}, {first.name} has "
                f"{', '.join(first.columns):.60}: write them in one order"
            )
        if spec.window is None and other.signal.shape != first.signal.shape:
            raise TaskError(
                f"{other.name} has {other.signal.shape[1]} samples, {first.name} has {first.signal.shape[1]}: "
                "give input.window, so that windows of one length are cut"
            )


def window_begins(length: int, spec: InputSpec) -> range:
    """Return where the windows of a recording of `length` samples begin; a rest at its end is not used."""
    window = spec.window or length
    return range(0, length - window + 1, spec.hop or window)


class WindowSamples(HashedSamples):
    """Windows of recordings; nothing is copied until a window is asked for.

    Args:
        recordings: Recordings, checked with `check_signal` and `check_alike`; at least one.
        labels: Labels of the windows, recording by recording, as in `Samples`.
        spec: Window and hop.
    """

    def __init__(self, recordings: Sequence[Recording], labels: Labels, spec: InputSpec) -> None:
        super().__init__(labels)
        self._recordings, self.columns = tuple(recordings), recordings[0].columns
        self._length = spec.window or recordings[0].signal.shape[1]
        self._windows = [
            (number, begin)
            for number, recording in enumerate(recordings)
            for begin in window_begins(recording.signal.shape[1], spec)
        ]

    def __len__(self) -> int:
        return len(self._windows)

    def load(self, index: int) -> Floats:
        number, begin = self._windows[index]
        return np.array(self._recordings[number].signal[:, begin : begin + self._length], np.float32, order="C")

    def _content(self, index: int) -> Iterable[bytes]:
        window = self.load(index)
        return window.tobytes(), repr(window.shape).encode()

    def name(self, index: int) -> str:
        number, begin = self._windows[index]
        return f"{self._recordings[number].name}@{begin}"

    def origin(self, index: int) -> str:
        return self._recordings[self._windows[index][0]].name

    def whole(self, index: int) -> str:
        return self.origin(index)

    def stamp(self, index: int) -> str:
        signal = self._recordings[self._windows[index][0]].signal
        return str(len(signal) * self._length * signal.dtype.itemsize)


def cut_windows(signal: Array, spec: InputSpec, name: str) -> Floats:
    """Cut one recording into all its windows: [channels, time] to float32 [n, channels, window], a view of it.

    Raises:
        TaskError: The array is no signal, or is shorter than the window.
    """
    check_signal(signal, spec, name)
    length = spec.window or signal.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(signal, np.float32), length, axis=1)
    return np.asarray(windows[:, :: spec.hop or length].transpose(1, 0, 2))


def channel_statistics(samples: Samples, where: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of every channel over all windows, in double precision.

    Raises:
        TaskError: A channel never changes, so it has no deviation to divide by.
    """
    offset = samples.load(0).astype(np.float64).mean(axis=1)  # without it, squares of a large mean hide the deviation
    total, squares, count = np.zeros(1), np.zeros(1), 0
    for index in range(len(samples)):
        window = samples.load(index) - offset[:, np.newaxis]
        total, squares = total + window.sum(axis=1), squares + (window**2).sum(axis=1)
        count += window.shape[1]
    rest = total / count
    mean, deviation = offset + rest, np.sqrt(np.maximum(squares / count - rest**2, 0))
    constant = np.flatnonzero(deviation <= np.abs(mean) * np.finfo(np.float32).eps)
    if len(constant):
        channel = int(constant[0])
        raise TaskError(
            f"{where}: channel {channel} is {mean[channel]:g} throughout, and a constant cannot be standardised: "
            "leave the channel out, or give input.mean and input.std"
        )
    return tuple(mean.tolist()), tuple(deviation.tolist())
