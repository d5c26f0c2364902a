"""Conversion of new samples on a device, files or arrays, to the model's inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.errors import BundleError, nearest
from tuner.runtime.infer.targets import Target, standardised_targets
from tuner.task.inputs import input_kind
from tuner.task.spec import InputSpec

Sample = str | Path | Array
#: A sample's label; with several labels a sample, all of its own; of a regression its target, or its targets.
Label = str | Sequence[str] | Target


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
    """Return labels as the loss takes them: int64 [n], or float32 [n, outputs] with several labels a sample.

    A label is one of the bundle's, or a name that its `label_map` has.
    Of a regression, standardised targets, float32 [n, outputs].

    Raises:
        BundleError: The bundle does not have a label, or a target is no number.
    """
    if bundle.info.targets is not None:
        return standardised_targets(labels, bundle)
    multi = bundle.loss == "multi-label"
    given = [list(label) if isinstance(label, list | tuple) else [str(label)] for label in labels]
    named = [[one for label in of_sample for one in bundle.info.labels_of(label)] for of_sample in given]
    for of_sample in named:
        for label in of_sample:
            if label not in bundle.labels:
                raise BundleError(
                    f"{bundle.name} has no label {label!r}{nearest(label, bundle.labels)}: "
                    "`tuner apply` trains new ones"
                )
        if not multi and len(of_sample) != 1:
            raise BundleError(
                f"{bundle.name} is single-label, but a sample has {len(of_sample)} labels: give one label per sample"
            )
    if not multi:
        return np.array([bundle.labels.index(label) for (label,) in named], np.int64)
    rows = np.zeros((len(named), len(bundle.labels)), np.float32)
    for row, of_sample in zip(rows, named, strict=True):
        row[[bundle.labels.index(label) for label in of_sample]] = 1
    return rows
