"""A task that one of NNTrainer's model files describes: its network, its data, its loss."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.errors import ModelError, TaskError
from tuner.reading import kind_of, read_bytes, text_from
from tuner.targets import MultiLabel, Regression, SingleLabel, Targets
from tuner.targets.regression import output_names
from tuner.targets.strata import occurring
from tuner.task.data.npz import PartitionName, class_names, labels_key, open_npz, samples_key
from tuner.task.data.samples import ArraySamples, Samples, Subset
from tuner.task.file.sections import path_of
from tuner.task.file.variables import expand
from tuner.task.partition import stratified_holdout
from tuner.task.spec import InputSpec, ModelSpec
from tuner.task.task import Domain, GivenTraining, Task
from tuner_nntrainer.file.data import DataFiles, data_files
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.file.recipe import read_recipe
from tuner_nntrainer.network.checks import check_trainable, frozen_parameters, row_numbers
from tuner_nntrainer.network.layers import Input, Shape, format_shape
from tuner_nntrainer.network.network import Network
from tuner_nntrainer.network.rules import values

FACTORY = "tuner_nntrainer.torch:from_ini"
_SPEC = InputSpec(kind="arrays")
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Partition:
    """Samples of one file.

    Attributes:
        x: [n, channels, height, width].
        y: Labels as `Task` has them.
        names: Names of the outputs.
        title: Name of the samples, for people.
    """

    x: Array
    y: Labels
    names: tuple[str, ...]
    title: str

    def samples(self) -> Samples:
        return ArraySamples(self.x, self.y, _SPEC, self.title)


def task_from_ini(path: Path) -> Task:
    """Read a model file and the data that it names.

    Args:
        path: Absolute path of the file.

    Raises:
        TaskError: It names no training data, or data that cannot be used.
        ModelError: It cannot be read or trained.
    """
    network, files = read_ini(path), data_files(path)
    try:
        check_trainable(network)
    except ModelError as error:
        raise ModelError(str(error) if ".ini, [" in str(error) else f"{path}: {error}") from None
    recipe = read_recipe(path, network)
    partitions = _partitions(path, network, files)
    train = partitions["train"]
    names = train.names
    weights = _weights(path, files)
    return Task(
        name=text_from(path.stem),
        model=ModelSpec(FACTORY, (("file", str(path)), *((("weights", str(weights)),) if weights else ()))),
        input=_SPEC,
        loss=_kind(network).name,
        local=_domain(partitions),
        global_=None,
        labels=names,
        head_rows=tuple(range(len(names))),
        local_labels=occurring(train.y) if _kind(network).has_classes else tuple(range(len(names))),
        given=None if recipe is None else GivenTraining(recipe, frozen_parameters(network)),
    )


def _kind(network: Network) -> Targets:
    if network.loss == "mse":
        return Regression()
    return SingleLabel() if network.absorbed == "softmax" else MultiLabel()


def _weights(path: Path, files: DataFiles) -> Path | None:
    """Return the file of weights that the network starts from: that of ``save_path``, where it is there."""
    file = None if files.weights is None else path_of(expand(files.weights, path), path.parent)
    return file.absolute() if file is not None and kind_of(file) == "file" else None


def _domain(partitions: Mapping[PartitionName, _Partition]) -> Domain:
    test = partitions["test"].samples() if "test" in partitions else None
    train = partitions["train"].samples()
    if "val" in partitions:
        return Domain(train, partitions["val"].samples(), test)
    rest, held_out = stratified_holdout(train.labels)
    if len(held_out) == 0:
        raise TaskError(f"{partitions['train'].title}: too few samples to hold some out: add a section [valid_set]")
    return Domain(Subset(train, rest), Subset(train, held_out), test)


def _partitions(path: Path, network: Network, files: DataFiles) -> dict[PartitionName, _Partition]:
    if "train" not in files.paths:
        raise TaskError(
            f"{path}: there is no training data, without which `tuner describe` shows the planned memory alone: add a "
            "section [train_set] with path = FILE"
        )
    partitions: dict[PartitionName, _Partition] = {}
    seen: dict[tuple[Path, str], str] = {}
    for name, (section, text) in files.paths.items():
        place = f"{path}, [{section}]"
        file = path_of(expand(text, path), path.parent)
        if kind_of(file) != "file":
            raise TaskError(f"{place}: path: no such file {file}: paths are relative to the model file")
        partition = _read(file, name, network, place)
        twin = seen.setdefault((file.resolve(), partition.title), section)
        if twin != section:
            raise TaskError(
                f"{place}: is also the data of [{twin}], so scores would be measured on samples already seen: give "
                f"other data, or remove [{section}]"
            )
        partitions[name] = partition
    return partitions


def _read(file: Path, name: PartitionName, network: Network, place: str) -> _Partition:
    """Read one file.

    Args:
        file: ``.npz``, or values of samples and labels in turn as NNTrainer reads them.
        name: The partition, as an ``.npz`` may hold several.
        network: Network that reads the samples.
        place: File and section, for messages.
    """
    shape = next(node.operation.shape for node in network.nodes if isinstance(node.operation, Input))
    outputs = values(network.nodes[-1].traits.shape)
    if file.suffix.lower() == ".npz":
        with open_npz(file) as arrays:
            key = samples_key(file, arrays, name, labelled=True)
            x, y, classes = arrays[key], arrays[labels_key(key)], class_names(arrays)
        if len(x) != len(y) or len(x) == 0:
            raise TaskError(
                f"{file}:{key}: there must be one label per sample, got {list(x.shape)} and {list(y.shape)}"
            )
        x, title = _shaped(x, shape, f"{file}:{key}"), f"{file.name}:{key}"
        kind = _kind(network)
        if y.ndim == 1 or not kind.has_classes:
            names, y = kind.read_array(f"{file}:{key}", y, classes, [str(row) for row in range(outputs)])
        else:
            names = tuple(classes or map(str, range(outputs)))
            y = _labels(np.asarray(y, np.float32), network, f"{file}:{key}")
        if len(names) != outputs:
            raise TaskError(f"{file}:{key}: the model has {outputs} outputs, but the labels have {len(names)}")
    else:
        x, y = _raw(file, shape, outputs, place)
        title = file.name
        if not _kind(network).has_classes:
            names, y = _kind(network).read_array(str(file), y, output_names(outputs), ())
        else:
            y, names = _labels(y, network, str(file)), tuple(map(str, range(outputs)))
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise TaskError(f"{file}: the samples must be finite numbers, but some are not: correct the data")
    _check_row_numbers(x, network, str(file))
    return _Partition(x, y, names, title)


def _shaped(x: Array, shape: Shape, where: str) -> Array:
    """Return samples as [n, channels, height, width]."""
    channels, height, width = shape
    if x.shape[1:] == (height, width, channels) and channels > 1:
        return np.ascontiguousarray(np.moveaxis(x, -1, 1))
    if x.dtype.kind not in "buif" or x[0].size != values(shape):
        raise TaskError(
            f"{where}: the model reads {format_shape(shape)}, {values(shape)} numbers a sample, got {x.dtype} "
            f"{list(x.shape)}: correct input_shape or the data"
        )
    return x.reshape(len(x), *shape)


def _raw(file: Path, shape: Shape, outputs: int, place: str) -> tuple[Floats, Floats]:
    """Return the samples and label values of a file of 32-bit floats, as NNTrainer's RawFileDataProducer reads them."""
    try:
        content = read_bytes(file, sys.maxsize)
    except OSError as error:
        raise TaskError(f"{place}: {file} cannot be read ({error.strerror or error}): check permissions") from None
    count = values(shape) + outputs
    if not content or len(content) % (_FLOAT_BYTES * count):
        raise TaskError(
            f"{place}: {file} must hold {values(shape)} values of a sample and {outputs} of its label in turn, each a "
            f"32-bit float, but {len(content):,} bytes are no whole number of samples: correct the data"
        )
    table = np.frombuffer(content, "<f4").reshape(-1, count)
    return table[:, : values(shape)].reshape(-1, *shape), table[:, values(shape) :]


def _labels(y: Floats, network: Network, where: str) -> Labels:
    """Return labels as `Task` has them: rows of one-hot values, or several labels a sample as they are."""
    single = _kind(network).one_class
    if not np.isin(y, (0, 1)).all() or (single and not (y.sum(axis=1) == 1).all()):
        rule = "a single 1 among zeros" if single else "zeros and ones only"
        bad = int(np.argmax(~np.isin(y, (0, 1)).all(axis=1) | (single & (y.sum(axis=1) != 1))))
        raise TaskError(
            f"{where}: the label values of a sample must be {rule} with loss = cross, got {y[bad].tolist()} for sample "
            f"{bad}: correct the data, input_shape or the last layer's unit"
        )
    return y.argmax(axis=1).astype(np.int64) if single else y.astype(np.float32)


def _check_row_numbers(x: Array, network: Network, where: str) -> None:
    """Require that what embeddings read are row numbers of their tables."""
    flat = x.reshape(len(x), -1)
    for node, places in row_numbers(network):
        numbers, size = flat[:, places], next(iter(node.traits.weights.values())) // node.traits.shape[2]
        bad = numbers[(numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= size)]
        if bad.size:
            raise TaskError(
                f"{where}: layer {node.name!r} reads whole numbers from 0 to {size - 1}, got {bad[0]:g}: correct the "
                "data, or raise in_dim"
            )
