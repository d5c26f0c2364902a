"""Arrays: samples that are used as they are; of a task, in an ``.npz``."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.arrays import Array, Labels
from tuner.errors import TaskError
from tuner.reading import kind_of
from tuner.task.data.npy import read_npy
from tuner.task.inputs.base import InputKind, Network, flat_network
from tuner.task.spec import InputSpec

if TYPE_CHECKING:  # as for the base class
    from tuner.task.data.entry import Entry, EntrySource
    from tuner.task.data.samples import Samples


_LENET_SIDE = 28


class Arrays(InputKind):
    """Arrays [C, ...], resized where a size is given."""

    name = "arrays"
    suffixes = frozenset({".npy", ".csv"})
    settings = frozenset({"size", "resize"})

    def entry(self, source: "EntrySource") -> "Entry":
        from tuner.task.data.entry import no_such_data
        from tuner.task.data.table import SUFFIX, split_column

        file, column = split_column(source.path)
        if kind_of(file) == "nothing":
            raise no_such_data(file, source.partition)
        if file.suffix.lower() == SUFFIX:
            return _read_rows(source, file, column)
        if file.suffix.lower() not in {".npz", ".npy"}:
            raise TaskError(
                f'{source.path}: kind "arrays" is read from an .npz, a .npy with its labels next to it, or a .csv; for '
                'files in class folders set kind = "images", or "signals" for recordings [channels, time]'
            )
        return read_arrays(source)

    def read(self, path: Path, spec: InputSpec) -> Array:
        """Return the array of a file; of a table, its only row."""
        sample = read_npy(path) if path.suffix.lower() != ".csv" else _only_row(path, spec.columns)
        _check_finite(sample[np.newaxis], lambda _: str(path))
        return sample

    def standardised(self, spec: InputSpec, partitions: "Mapping[str, Samples]") -> InputSpec:
        """Return the input as it is, of pixels only if `mean` and `std` are of pixels from 0 to 1."""
        from tuner.task.data.images import check_scale
        from tuner.task.data.table import with_columns

        if any(samples.load(0).dtype == np.uint8 for samples in partitions.values()):
            check_scale({"mean": spec.mean, "std": spec.std})
        return with_columns(spec, partitions)

    def network(self, shape: Sequence[int], outputs: int) -> Network:
        """Return a small convolutional network for pictures of a size that one takes, else one of linear layers."""
        if tuple(shape) in {(1, 28, 28), (1, 8, 8)}:
            factory = "tuner.models.lenet:lenet_2d" if shape[1] == _LENET_SIDE else "tuner.models.digits:build"
            return Network(factory, {"outputs": outputs}, ops=("shift",))
        return flat_network(shape, outputs)

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
    with open_npz(path) if path.suffix.lower() == ".npz" else nullcontext(_loose_arrays(path, labelled)) as file:
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


def _loose_arrays(path: Path, labelled: bool) -> dict[str, Array]:
    """Return samples of a ``.npy`` and their labels, in the file of the same name with y for x, as of an ``.npz``."""
    from tuner.task.data.npz import labels_key

    if not labelled:
        return {"x": read_npy(path)}
    labels = path.with_name(f"{labels_key(path.stem)}{path.suffix}")
    if kind_of(labels) != "file" or labels == path:
        raise TaskError(
            f"{path}: its labels must be next to it, such as x_train.npy and y_train.npy: save them so, or both in an "
            ".npz with numpy.savez(file, x=..., y=...)"
        )
    return {"x": read_npy(path), "y": read_npy(labels)}


def _read_rows(source: "EntrySource", file: Path, column: str) -> "Entry":
    """Return the rows of a table as samples."""
    from tuner.task.data.entry import Entry
    from tuner.task.data.samples import ArraySamples
    from tuner.task.data.table import label_column, read_table

    table = read_table(file, column or label_column(file, needed=source.labelled))
    names: tuple[str, ...] = ()
    targets: Labels = np.zeros(len(table.values), np.int64)
    if source.labelled:
        names, targets = source.targets.read_texts(table.labels_of(file, source.targets), file)
    build = partial(ArraySamples, table.values, spec=source.spec, title=file.name, columns=table.columns)
    return Entry(str(file), names, targets, build)


def _only_row(path: Path, columns: Sequence[str]) -> Array:
    from tuner.task.data.table import read_table

    rows = read_table(path, columns=columns).values
    if len(rows) != 1:
        raise TaskError(f"{path}: a file to predict must have one row, got {len(rows):,}: write a file for each row")
    row: Array = rows[0]
    return row


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
