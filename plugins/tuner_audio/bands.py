"""Sounds: a file decoded, mixed down, resampled and turned into log-mel bands, alike in training and on the device.

Source: the input of YAMNet: 16 kHz mono; a Hann window of 25 ms every 10 ms, FFT of 512; 64 triangular mel bands from
125 to 7,500 Hz of the magnitudes; log(x + 0.001); patches of 96 frames, one every 48.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from tuner.arrays import Array, Doubles, Floats
from tuner.errors import TaskError, missing_extra
from tuner.reading import open_regular

if TYPE_CHECKING:
    from soundfile import SoundFile

RATE = 16_000
FRAME, STEP, FFT = 400, 160, 512  # samples: 25 ms, 10 ms
BANDS, LOWEST_HZ, HIGHEST_HZ = 64, 125.0, 7500.0
OFFSET = 0.001
#: Frames of a patch, and from the begin of one to the begin of the next.
PATCH, HOP = 96, 48
SUFFIXES = frozenset(
    {".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".w64", ".wav"}
)
FORMATS = frozenset({"AIFF", "AU", "CAF", "FLAC", "MP3", "OGG", "RF64", "W64", "WAV", "WAVEX"})
#: Longest sound that is read, whatever its rate and channels, and the rates that are resampled.
MOST_SECONDS = 3600
RATES = (1_000, 768_000)
#: Largest sample, where full scale is 1: floats may go above it, but not so far by recording.
MOST_LOUD = 100
_BLOCK = 2**18  # samples that are decoded at a time, of all channels
_FRAMES_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One sound.

    Attributes:
        bands: Its log-mel bands, float32 [64, frames], of at least one patch.
        note: What was done to it that a person should know: mixed down, padded; empty for nothing.
    """

    bands: Floats
    note: str = ""


@dataclass(frozen=True, slots=True)
class ClipHeader:
    """What a sound's header says.

    Attributes:
        samples: Length in samples at `RATE`.
        channels: Number of channels.
    """

    samples: int
    channels: int

    def frames(self, patch: int) -> int:
        """Return the number of log-mel frames, after padding to a patch."""
        return max(patch, 1 + (self.samples - FRAME) // STEP)

    def note(self, patch: int) -> str:
        """Return what is done to the sound that a person should know; empty for nothing."""
        mixed = [f"{self.channels} channels mixed down to one"] if self.channels > 1 else []
        short = 1 + (self.samples - FRAME) // STEP < patch
        seconds, needed = self.samples / RATE, seconds_of(patch)
        padded = [f"{seconds:.2f} s long, padded with silence to {needed:.2f} s"] if short else []
        return ", ".join([*mixed, *padded])


def seconds_of(frames: int) -> float:
    """Return the length of a sound that gives so many log-mel frames."""
    return (FRAME + (frames - 1) * STEP) / RATE


def read_clip(path: str | Path, patch: int = PATCH) -> Clip:
    """Read a sound as the model hears it.

    Args:
        path: A file of one of `FORMATS`.
        patch: Frames of a patch: a shorter sound is padded with silence to one.

    Raises:
        TaskError: The file is missing, empty, no such sound, too long, or holds samples that are no sound.
    """
    soundfile, soxr = _libraries()
    try:
        with open_regular(path) as file, soundfile.SoundFile(file) as sound:
            header = _checked(sound)
            blocks = sound.blocks(max(1, _BLOCK // sound.channels), dtype="float32", always_2d=True)
            mono = (_sane(block).mean(axis=1) for block in blocks)
            if sound.samplerate == RATE:
                parts = list(mono)
            else:  # as a stream: an hour at a high rate would take gigabytes
                resampler = soxr.ResampleStream(sound.samplerate, RATE, 1)
                parts = [resampler.resample_chunk(part) for part in mono]
                parts.append(resampler.resample_chunk(np.empty(0, np.float32), last=True))
        waveform: Floats = np.concatenate(parts)
    except Exception as error:  # libsndfile reports each damage in its own way
        raise _unreadable(path, error) from error
    return Clip(log_mel(waveform, patch), header.note(patch))


def read_header(path: str | Path) -> ClipHeader:
    """Read how long a sound is, without decoding it.

    Raises:
        TaskError: As `read_clip`, but for what only decoding shows.
    """
    soundfile, _ = _libraries()
    try:
        with open_regular(path) as file, soundfile.SoundFile(file) as sound:
            return _checked(sound)
    except Exception as error:  # as above
        raise _unreadable(path, error) from error


def log_mel(waveform: Array, patch: int = PATCH) -> Floats:
    """Return the log-mel bands of a sound.

    Args:
        waveform: Mono at `RATE`, from -1 to 1, [samples].
        patch: A shorter sound is padded with silence to so many frames.

    Returns:
        float32 [64, frames].
    """
    padding = max(0, FRAME + (patch - 1) * STEP - len(waveform))
    samples = np.pad(np.asarray(waveform, np.float32), (0, padding))
    frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::STEP]
    bands = np.empty((BANDS, len(frames)), np.float32)
    for at in range(0, len(frames), _FRAMES_AT_ONCE):
        part = frames[at : at + _FRAMES_AT_ONCE] * hann()
        # in float32, what a loud tone leaves in silent bands by rounding would be larger than the offset
        magnitudes = np.abs(np.fft.rfft(part.astype(np.float64), FFT)).astype(np.float32)  # [frames, 257]
        bands[:, at : at + len(part)] = np.log(magnitudes @ mel_weights() + np.float32(OFFSET)).T
    return bands


@cache
def mel_weights() -> Floats:
    """Return what each band takes of each frequency of the FFT, float32 [257, 64]: triangles on the mel scale."""
    frequencies = _mel(np.linspace(0, RATE / 2, FFT // 2 + 1))[:, None]
    edges = np.linspace(_mel(np.array(LOWEST_HZ)), _mel(np.array(HIGHEST_HZ)), BANDS + 2)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    weights: Doubles = np.maximum(0, np.minimum(rising, falling))
    return weights.astype(np.float32)


@cache
def hann() -> Floats:
    """Return the window of a frame, float32 [400]."""
    window: Doubles = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)  # periodic
    return window.astype(np.float32)


def _mel(hertz: Doubles) -> Doubles:
    mel: Doubles = 1127.0 * np.log1p(hertz / 700.0)
    return mel


def _libraries() -> tuple[ModuleType, ModuleType]:
    """Return soundfile and soxr.

    Raises:
        TunerError: One is not installed; it names the extra.
    """
    try:
        import soundfile
        import soxr
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return soundfile, soxr


class _UnusableError(ValueError):
    """A sound can be read, but a rule refuses it."""


def _sane(block: Floats) -> Floats:
    """Return decoded samples, unless log-mel bands of them could be infinite or mean nothing."""
    loudest = float(np.abs(block).max(initial=0))
    if not math.isfinite(loudest):
        raise _UnusableError("it holds samples that are not finite numbers")
    if loudest > MOST_LOUD:
        raise _UnusableError(f"it holds a sample of {loudest:.3g}, where full scale is 1 and {MOST_LOUD} is the most")
    return block


def _checked(sound: "SoundFile") -> ClipHeader:
    """Return what a header says, unless it is of a sound that is not read.

    Raises:
        _UnusableError: It is empty, too long, or of another format.
    """
    if sound.format not in FORMATS:
        raise _UnusableError(f"its format is {sound.format}, not one of {', '.join(sorted(FORMATS))}")
    if not RATES[0] <= sound.samplerate <= RATES[1]:
        raise _UnusableError(f"its rate is {sound.samplerate} Hz, outside {RATES[0]} to {RATES[1]}")
    if sound.frames <= 0:
        raise _UnusableError("it is empty")
    if sound.frames > MOST_SECONDS * sound.samplerate:
        seconds = math.ceil(sound.frames / sound.samplerate)
        raise _UnusableError(f"it is {seconds:,} s long, more than {MOST_SECONDS:,} s")
    return ClipHeader(sound.frames * RATE // sound.samplerate, sound.channels)


def _unreadable(path: str | Path, error: Exception) -> TaskError:
    if isinstance(error, FileNotFoundError):
        return TaskError(f"{path}: no such file: check the path; it may have been removed")
    if isinstance(error, OSError):
        return TaskError(f"{path}: cannot be read ({error.strerror or error}): check its permissions")
    if isinstance(error, _UnusableError):
        return TaskError(f"{path}: cannot be used ({error}): replace or remove it")
    reason = getattr(error, "error_string", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return TaskError(f"{path}: not a sound that can be read ({reason.rstrip('.')}): replace or remove it")
