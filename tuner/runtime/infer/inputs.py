"""Conversion of new samples on a device, files or arrays, to the model's inputs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.errors import BundleError, nearest
from tuner.runtime.infer.cutting import cut, load_cut
from tuner.runtime.infer.targets import Target, standardised_targets
from tuner.task import decode_image, read_npy
from tuner.task.spec import CUT

Sample = str | Path | Array
#: A sample's label; with several labels a sample, all of its own; of a regression its target, or its targets.
Label = str | Sequence[str] | Target


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
