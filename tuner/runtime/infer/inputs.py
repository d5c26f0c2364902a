"""Conversion of new samples on a device, files or arrays, to the model's inputs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.runtime.infer.cutting import cut, load_cut
from tuner.targets.base import Label
from tuner.task import decode_image, read_npy
from tuner.task.spec import CUT

Sample = str | Path | Array


def inputs(samples: Sequence[Sample], bundle: Bundle) -> Iterator[tuple[int, Array]]:
    """Yield a sample's number and its input, not normalised; of a recording, every window.

    Args:
        samples: Image files, ``.npy`` files, or arrays.
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


def _arrays(sample: Sample, name: str, bundle: Bundle) -> Sequence[Array] | Array:
    spec = bundle.input
    if spec.kind == "images":
        return [sample if isinstance(sample, np.ndarray) else decode_image(sample, spec)]
    if spec.kind in CUT:
        if isinstance(sample, np.ndarray) and sample.shape == bundle.input_shape:  # cut already, as a ring keeps it
            return [sample]
        signal = sample if isinstance(sample, np.ndarray) else load_cut(Path(sample), bundle)[0]
        return cut(signal, bundle, name)[1]
    return [sample if isinstance(sample, np.ndarray) else read_npy(Path(sample))]


def label_rows(labels: Sequence[Label], bundle: Bundle) -> Array:
    """Return labels as the loss takes them; one is among the bundle's, or a name that its `label_map` has.

    Raises:
        BundleError: The bundle does not have a label, or a target is no number.
    """
    return bundle.targets.rows(labels, bundle.labels, bundle.info.labels_of, bundle.name)
