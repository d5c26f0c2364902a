"""Recordings and sounds on a device, cut into samples as in training."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.task import cut_windows, log_mel, read_clip, read_npy, window_begins


def load_cut(path: Path, bundle: Bundle) -> tuple[Array, str]:
    """Read a recording [channels, time], or the log-mel bands [64, frames] of a sound.

    Returns:
        The array, and a note on what was done to a sound that a person should know.

    Raises:
        TunerError: The file is missing, or is not one of these.
    """
    if bundle.input.kind == "audio":
        clip = read_clip(path, bundle.input_shape[-1])
        return clip.bands, clip.note
    return read_npy(path), ""


def cut(signal: Array, bundle: Bundle, name: str) -> tuple[range, Array]:
    """Cut a recording, or a sound, into samples.

    Args:
        signal: As `load_cut` returns it; a sound also as it is heard: mono at 16 kHz, [samples].
        bundle: Bundle of the model that takes the samples.
        name: Name of the recording, for messages.

    Returns:
        Where the samples begin, and the samples, [n, ...]: a view where that is possible.

    Raises:
        TunerError: It is no signal, is too short, or has other channels than the model takes.
    """
    *_, channels, length = bundle.input_shape
    if bundle.input.kind == "audio" and signal.ndim == 1:
        signal = log_mel(signal, length)
    spec = replace(bundle.input, window=length)
    windows = cut_windows(signal, spec, name)
    if windows.shape[1] != channels:
        raise BundleError(f"{bundle.name} takes {channels} channels, but {name} has {windows.shape[1]}")
    samples: Array = windows if bundle.input.kind == "signals" else windows[:, np.newaxis]
    return window_begins(signal.shape[1], spec), samples
