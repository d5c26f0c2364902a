"""A task: one model, what it knows, and what one user adds."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from tuner.errors import TaskError
from tuner.task.samples import Samples
from tuner.task.spec import InputSpec, ModelSpec

_SPOT_CHECKS = 16  # samples of each split whose content enters the fingerprint


@dataclass(frozen=True)
class Domain:
    """The splits of one kind of data. `val` guides the search; `test`, where given, is scored once, at export."""

    train: Samples
    val: Samples
    test: Samples | None = None

    def splits(self) -> Iterator[tuple[str, Samples]]:
        """Yield the splits that exist, by name."""
        yield "train", self.train
        yield "val", self.val
        if self.test is not None:
            yield "test", self.test


@dataclass(frozen=True)
class Task:
    """What is personalised.

    Attributes:
        name: What reports call it.
        model: The network and its weights.
        input: How samples become its input.
        loss: Whether a sample has one label or several.
        local: The user's own data.
        global_: What the model already knows; None: no mixing of global data and no global objective.
        labels: Rows of the union head in order: the global classes, then the new local ones.
        head_rows: For each global label, the first `len(head_rows)` of `labels`, its row in the given model's head.
        local_labels: The rows that occur in the local data.
        augment: Random operations that keep a sample's label (`tuner.store.ops`).
        labelled: Whether the local labels are the user's; else they mean nothing, and agreement with the given model
            is the objective.
    """

    name: str
    model: ModelSpec
    input: InputSpec
    loss: Literal["single-label", "multi-label"]
    local: Domain
    global_: Domain | None
    labels: tuple[str, ...]
    head_rows: tuple[int, ...]
    local_labels: tuple[int, ...]
    augment: tuple[str, ...] = ()
    labelled: bool = True

    def __post_init__(self) -> None:
        rows = len(self.labels)
        if len(set(self.labels)) != rows:
            raise TaskError(f"{self.name}: labels must differ from each other, got {_repeated(self.labels)!r} twice")
        if len(self.head_rows) > rows or len(set(self.head_rows)) != len(self.head_rows):
            raise TaskError(f"{self.name}: head_rows wants different rows for at most {rows} labels")
        if any(not 0 <= row < rows for row in self.local_labels):
            raise TaskError(f"{self.name}: local_labels wants rows below {rows}, got {list(self.local_labels)}")
        for where, samples in self._splits():
            _check_labels(f"{self.name}: {where}", samples, self.loss, rows)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch."""
        return tuple(self.local.train.load(0).shape)

    def fingerprint(self) -> str:
        """Hash what a run depends on, to 32 hex digits, so that a resumed run refuses a task that has changed.

        Weights and a factory's own file count by content; splits by the names, labels and sizes of their samples,
        and by the content of a few, spread evenly.
        """
        digest = hashlib.blake2b(digest_size=16)
        model = asdict(self.model)
        model["weights"] = _content(self.model.weights)
        model["factory_file"] = _content(self.model.factory.rpartition(":")[0])
        said = [model, asdict(self.input), self.loss, self.labels, self.head_rows, self.local_labels, self.augment]
        said += [] if self.labelled else [("unlabelled",)]
        digest.update(json.dumps(said, sort_keys=True, default=str).encode())
        for where, samples in self._splits():
            digest.update(f"\n{where} {len(samples)}\n".encode())
            digest.update(np.ascontiguousarray(samples.labels).tobytes())
            for index in range(len(samples)):
                digest.update(f"{samples.name(index)}\t{samples.size_bytes(index)}\n".encode())
            for index in range(0, len(samples), max(1, len(samples) // _SPOT_CHECKS)):
                digest.update(samples.sample_id(index).encode())
        return digest.hexdigest()

    def _splits(self) -> Iterator[tuple[str, Samples]]:
        for domain_name, domain in (("local", self.local), ("global", self.global_)):
            if domain is not None:
                for split, samples in domain.splits():
                    yield f"{domain_name}.{split}", samples


def _check_labels(where: str, samples: Samples, loss: str, rows: int) -> None:
    labels, count = samples.labels, len(samples)
    if count == 0:
        raise TaskError(f"{where} is empty: a split wants at least one sample")
    if loss == "single-label":
        if labels.ndim > 1:
            raise TaskError(
                f"{where}: a single-label task wants labels [n], got {list(labels.shape)}: "
                'give one label a sample, or set loss.kind = "multi-label"'
            )
        if labels.dtype != np.int64:
            raise TaskError(f"{where}: labels want int64, got {labels.dtype}")
        if len(labels) == count and (labels.min() < 0 or labels.max() >= rows):
            raise TaskError(f"{where}: labels want rows 0 to {rows - 1}, got {labels.min()} to {labels.max()}")
    elif labels.shape[1:] != (rows,) or labels.dtype != np.float32:
        raise TaskError(
            f"{where}: a multi-label task wants float32 [n, {rows}], got {labels.dtype} {list(labels.shape)}"
        )
    if len(labels) != count:
        raise TaskError(f"{where}: {count} samples want as many labels, got {len(labels)}")


def _content(path: str | None) -> str | None:
    """The hash of a file's content; a name that is not an absolute path stands for itself."""
    if path is None or not Path(path).is_absolute():
        return path
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror or error}): the task needs it") from error


def _repeated(words: tuple[str, ...]) -> str:
    return next(word for word in words if words.count(word) > 1)
