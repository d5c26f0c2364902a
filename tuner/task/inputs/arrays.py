"""Arrays: samples that are used as they are; of a task, in an ``.npz``."""

from collections.abc import Callable, Mapping
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
    from tuner.task.data.samples import Samples


class Arrays(InputKind):
    """Arrays [C, ...], resized where a size is given."""

    name = "arrays"
    suffixes = frozenset({".npy"})
    settings = frozenset({"size", "resize"})

    def entry(self, source: "EntrySource") -> "Entry":
        from tuner.task.data.entry import no_such_data

        if kind_of(source.path) == "nothing":
            raise no_such_data(source.path, source.partition)
        if source.path.suffix.lower() != ".npz":
            raise TaskError(f'{source.path}: kind "arrays" is read from an .npz; for image files set kind = "images"')
        return read_arrays(source)

    def read(self, path: Path, spec: InputSpec) -> Array:  # noqa: ARG002 - for others
        sample = read_npy(path)
        _check_finite(sample[np.newaxis], lambda _: str(path))
        return sample

    def standardised(self, spec: InputSpec, partitions: "Mapping[str, Samples]") -> InputSpec:
        """Return the input as it is, of pixels only if `mean` and `std` are of pixels from 0 to 1."""
        from tuner.task.data.images import check_scale

        if any(samples.load(0).dtype == np.uint8 for samples in partitions.values()):
            check_scale({"mean": spec.mean, "std": spec.std})
        return spec

    def check(self, spec: InputSpec, recording: str | None = None) -> None:
        super().check(spec, recording)
        if spec.resize is not None and spec.size is None:
            raise no_size(self.name)


def no_size(kind: str) -> TaskError:
    """Return the error for an input without a size."""
    return TaskError(f"input.size is needed for kind {kind!r}: give the side in pixels, e.g. size = 160")


def read_arrays(source: "EntrySource") -> "Entry":
    """Return the samples of an ``.npz``; a `TaskError` where it lacks the partition, or arrays do not fit."""
    from tuner.task.data.entry import Entry, empty_partition
    from tuner.task.data.npz import class_names, open_npz, read_labelled, samples_key
    from tuner.task.data.samples import ArraySamples

    path, partition, spec, labelled = source.path, source.partition, source.spec, source.labelled
    with open_npz(path) as file:
        x_key = samples_key(path, file, partition, labelled=labelled)
        where = f"{path}:{x_key}"
        if not labelled:
            x = file[x_key]
            _check_finite(x, lambda sample: f"{where}[{sample}]")
            return Entry(where, (), np.zeros(len(x), np.int64), lambda rows: ArraySamples(x, rows, spec, x_key))
        x, y = read_labelled(path, file, x_key)
        classes = class_names(file)
    if len(x) == 0:
        raise empty_partition(where, partition)
    _check_finite(x, lambda sample: f"{where}[{sample}]")
    names, targets = source.targets.read_array(where, y, classes, source.names)
    ArraySamples(x[:1], targets[:1], spec, where)  # reports a wrong shape or type now
    return Entry(where, names, targets, lambda rows: ArraySamples(x, rows, spec, x_key))


def _check_finite(samples: Array, name: Callable[[int], str]) -> None:
    """Refuse samples with values that are not finite; `name` returns that of a sample by its number."""
    if samples.dtype.kind != "f" or not len(samples):
        return
    broken = [at for at, sample in enumerate(samples) if not np.isfinite(sample).all()]
    if broken:
        more = f", and {len(broken) - 1:,} more samples" if len(broken) > 1 else ""
        place = np.argwhere(~np.isfinite(samples[broken[0]]))[0].tolist()
        raise TaskError(
            f"{name(broken[0])} must hold finite numbers, but has {samples[broken[0]][tuple(place)]} at {place}{more}: "
            "correct or remove such samples"
        )
