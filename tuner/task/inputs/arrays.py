"""Arrays: samples that are used as they are; of a task, in an ``.npz``."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.arrays import Array
from tuner.errors import TaskError
from tuner.reading import kind_of
from tuner.task.data.npy import read_npy
from tuner.task.inputs.base import InputKind
from tuner.task.spec import InputSpec

if TYPE_CHECKING:  # as for the base class
    from tuner.task.data.entry import Entry, EntrySource


class Arrays(InputKind):
    """Arrays [C, ...], resized where a size is given."""

    name = "arrays"
    suffixes = frozenset({".npy"})
    settings = frozenset({"size", "resize"})

    def entry(self, source: "EntrySource") -> "Entry":
        """Return an ``.npz``'s samples."""
        from tuner.task.data.entry import no_such_data

        if kind_of(source.path) == "nothing":
            raise no_such_data(source.path, source.partition)
        if source.path.suffix.lower() != ".npz":
            raise TaskError(f'{source.path}: kind "arrays" is read from an .npz; for image files set kind = "images"')
        return read_arrays(source)

    def read(self, path: Path, spec: InputSpec) -> Array:  # noqa: ARG002 - for others
        """Return the array of an ``.npy``."""
        return read_npy(path)

    def check(self, spec: InputSpec, recording: str | None = None) -> None:
        """Require a size where there is one to resize to."""
        super().check(spec, recording)
        if spec.resize is not None and spec.size is None:
            raise no_size(self.name)


def no_size(kind: str) -> TaskError:
    """Return the error for an input without a size."""
    return TaskError(f"input.size is needed for kind {kind!r}: give the side in pixels, e.g. size = 160")


def read_arrays(source: "EntrySource") -> "Entry":
    """Return the samples of an ``.npz``.

    Raises:
        TaskError: It lacks the partition, or arrays of it do not fit.
    """
    from tuner.task.data.entry import Entry, empty_partition
    from tuner.task.data.npz import class_names, labels_key, open_npz, samples_key
    from tuner.task.data.samples import ArraySamples

    path, partition, spec, labelled = source.path, source.partition, source.spec, source.labelled
    with open_npz(path) as file:
        x_key = samples_key(path, file, partition, labelled=labelled)
        x, classes = file[x_key], class_names(file) if labelled else None
        y: Array = file[labels_key(x_key)] if labelled else np.zeros(len(x), np.int64)
    where = f"{path}:{x_key}"
    if not labelled:
        return Entry(where, (), y, lambda rows: ArraySamples(x, rows, spec, x_key))
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{where}: there must be one label per sample, got {list(x.shape)} and {list(y.shape)}")
    if len(x) == 0:
        raise empty_partition(where, partition)
    names, targets = source.targets.read_array(where, y, classes, source.names)
    ArraySamples(x[:1], targets[:1], spec, where)  # reports a wrong shape or type now
    return Entry(where, names, targets, lambda rows: ArraySamples(x, rows, spec, x_key))
