"""New samples as a device has them: files or arrays in, the model's inputs out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError, nearest
from tuner.runtime.bundle import Bundle
from tuner.task import cut, decode_image, read_npy

Array = npt.NDArray[Any]
Sample = str | Path | Array
#: A label; of several labels a sample, all that it has.
Label = str | Sequence[str]


def inputs(samples: Sequence[Sample], bundle: Bundle) -> Iterator[tuple[int, Array]]:
    """Yield a sample's number and its input, not normalised; of a recording, every window.

    Args:
        samples: Image files, ``.npy`` files, or arrays.
        bundle: Whose model takes them.

    Raises:
        TunerError: A file cannot be read, or a shape is another one.
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


def _arrays(sample: Sample, name: str, bundle: Bundle) -> Sequence[Array] | Array:
    spec = bundle.input
    if spec.kind == "images":
        return [sample if isinstance(sample, np.ndarray) else decode_image(sample, spec)]
    array: Array = sample if isinstance(sample, np.ndarray) else read_npy(Path(sample))
    if spec.kind == "signals":
        windows: Array = cut(array, replace(spec, window=bundle.input_shape[-1]), name)
        return windows
    return [array]


def label_rows(labels: Sequence[Label], bundle: Bundle) -> Array:
    """Return labels as the loss takes them: int64 [n], or float32 [n, outputs] of several labels a sample.

    Raises:
        BundleError: A label is not the bundle's.
    """
    several = bundle.loss == "multi-label"
    named = [[one] if isinstance(one, str) else list(one) for one in labels]
    for one in named:
        for label in one:
            if label not in bundle.labels:
                raise BundleError(
                    f"{bundle.name} has no label {label!r}{nearest(label, bundle.labels)}: "
                    "`tuner apply` trains new ones"
                )
        if not several and len(one) != 1:
            raise BundleError(f"{bundle.name} has one label a sample, but one of these has {len(one)}")
    if not several:
        return np.array([bundle.labels.index(label) for (label,) in named], np.int64)
    rows = np.zeros((len(named), len(bundle.labels)), np.float32)
    for row, one in zip(rows, named, strict=True):
        row[[bundle.labels.index(label) for label in one]] = 1
    return rows
