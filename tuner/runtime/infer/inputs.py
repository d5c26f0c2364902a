"""Conversion of new samples on a device, files or arrays, to the model's inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.targets.base import Label
from tuner.task.inputs import input_kind
from tuner.task.spec import InputSpec

Sample = str | Path | Array


def inputs(samples: Sequence[Sample], bundle: Bundle) -> Iterator[tuple[int, Array]]:
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


def spec_of(bundle: Bundle) -> InputSpec:
    """Return the input of a bundle's model; where samples are windows, with their length."""
    windowed = input_kind(bundle.input.kind).windowed
    return replace(bundle.input, window=bundle.input_shape[-1]) if windowed else bundle.input


def load(path: Path, bundle: Bundle) -> Array:
    """Return the content of a file, decoded as in training; a recording is not cut into windows.

    Raises:
        TunerError: It is missing, or is none of the bundle's kind.
    """
    return input_kind(bundle.input.kind).read(path, spec_of(bundle))


def cut(content: Array, bundle: Bundle, name: str) -> tuple[range, Array]:
    """Cut a recording into windows, as in training.

    Args:
        content: As `load` returns it; a sound also as it is heard.
        bundle: Bundle of the model that takes the windows.
        name: Name of the recording, for messages.

    Returns:
        Where the windows begin, and the windows, [n, ...]: a view where that is possible.

    Raises:
        TunerError: It is no recording, is too short, or its windows are not what the model takes.
    """
    begins, windows = input_kind(bundle.input.kind).pieces(content, spec_of(bundle), name)
    if windows.shape[1:] != bundle.input_shape:
        taken, given = list(bundle.input_shape), list(windows.shape[1:])
        raise BundleError(f"{bundle.name} takes windows of shape {taken}, but those of {name} have {given}")
    return begins, windows


def _arrays(sample: Sample, name: str, bundle: Bundle) -> Sequence[Array] | Array:
    windowed = input_kind(bundle.input.kind).windowed
    if isinstance(sample, np.ndarray) and (not windowed or sample.shape == bundle.input_shape):  # as a ring keeps it
        return [sample]
    content = sample if isinstance(sample, np.ndarray) else load(Path(sample), bundle)
    return cut(content, bundle, name)[1] if windowed else [content]


def label_rows(labels: Sequence[Label], bundle: Bundle) -> Array:
    """Return labels as the loss takes them; one is among the bundle's, or a name that its `label_map` has.

    Raises:
        BundleError: The bundle does not have a label, or a target is no number.
    """
    return bundle.targets.rows(labels, bundle.labels, bundle.info.labels_of, bundle.name)
