"""What a run depends on, hashed part by part: the same where files are moved, and able to say what differs."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.errors import TaskError
from tuner.reading import kind_of, text_from
from tuner.task.spec import ModelSpec

if TYPE_CHECKING:
    from tuner.task.data.samples import Samples

#: Samples of a partition whose content is read, spread evenly over its classes; at least two of each class.
_READ_SAMPLES = 16
#: As many differences of a partition are named.
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """The samples of one partition.

    Attributes:
        classes: Number of samples and their hash, such as ``"60 9f86d081884c7d65"``, by class; by ``""`` for all where
            a sample has not one class.
        order: Hash of the labels in the order of the samples, which a plan's choice of samples depends on.
    """

    classes: dict[str, str]
    order: str

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(map(_count, self.classes.values()))

    def differences(self, now: "PartitionContents") -> list[str]:
        """Return what is different now, a few words each: ``"5 more of class a"``; empty for nothing."""
        before, after = dict(self.classes), dict(now.classes)
        hashes = {content: name for name, content in after.items() if name not in before}
        found = []
        for name in [name for name in before if name not in after]:
            if (new := hashes.pop(before[name], None)) is not None:
                found.append(f"class {name} is called {new}")
                del before[name], after[new]
        for name in [*before, *(name for name in after if name not in before)]:
            of = f" of class {name}" if name else ""
            more = _count(after.get(name, "0")) - _count(before.get(name, "0"))
            if more:
                found.append(f"{abs(more)} {'more' if more > 0 else 'fewer'}{of}")
            elif before[name] != after[name]:
                found.append(f"other samples{of}")
        if not found and self.order != now.order:
            found = ["another order of the samples"]
        if len(found) <= _MOST_NAMED:
            return found
        return [*found[: _MOST_NAMED - 1], f"and {len(found) - _MOST_NAMED + 1} more classes differ"]


@dataclass(frozen=True, slots=True)
class TaskContents:
    """A task's settings and samples, without the places of its files.

    Attributes:
        settings: Hash of each part of the settings, by the words for it.
        partitions: Samples by the partition's full name, such as ``"local.train"``.
    """

    settings: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, PartitionContents] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of everything, 32 hex digits."""
        content = json.dumps(asdict(self), sort_keys=True).encode()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def settings_changed(self, now: "TaskContents") -> list[str]:
        """Return the words for settings that are different now."""
        names = {**self.settings, **now.settings}
        return [name for name in names if self.settings.get(name) != now.settings.get(name)]

    def samples_changed(self, now: "TaskContents") -> dict[str, list[str]]:
        """Return what is different now, by partition; empty for nothing."""
        nothing = PartitionContents({}, "")
        found = {
            name: self.partitions.get(name, nothing).differences(now.partitions.get(name, nothing))
            for name in {**self.partitions, **now.partitions}
        }
        return {name: differences for name, differences in found.items() if differences}

    def differences(self, now: "TaskContents") -> str:
        """Return a line on what is different now: ``"local.train: 5 more of class a; other weights"``."""
        samples = (f"{name}: {', '.join(found)}" for name, found in self.samples_changed(now).items())
        return "; ".join([*samples, *(f"other {name}" for name in self.settings_changed(now))])


def contents_of(
    settings: Mapping[str, Any], partitions: Iterable[tuple[str, "Samples"]], classes: Sequence[str]
) -> TaskContents:
    """Return what a run of a task depends on.

    Samples count by their names within the folder of their class, by the sizes of all, and by the content of a few,
    spread evenly; sounds by that of all.

    Args:
        settings: The task's settings, by the words for them.
        partitions: Full names and samples.
        classes: Names of the classes; none where a sample has not one class.

    Raises:
        TaskError: A file cannot be read.
    """
    hashes = {name: _hash(json.dumps(value, sort_keys=True, default=str).encode()) for name, value in settings.items()}
    return TaskContents(hashes, {where: _partition(samples, classes) for where, samples in partitions})


def model_contents(model: ModelSpec) -> dict[str, Any]:
    """Return the settings of a model, by the words for them: weights, a factory's file and arguments by content.

    Raises:
        TaskError: A file cannot be read.
    """
    network = asdict(model)
    weights, pretrain, arguments = network.pop("weights"), network.pop("pretrain"), network.pop("arguments")
    if pretrain is not None:
        del pretrain["is_preview"]  # what is trained is the same
    place, _, name = model.factory.rpartition(":")
    network["factory"] = [model.source[0], _content(model.source[1])] if model.source else [_content(place), name]
    network["arguments"] = [(name, _content(value) if _is_there(value) else value) for name, value in arguments]
    return {"weights": _content(weights), "network": network, "pretraining": pretrain}


def _partition(samples: "Samples", names: Sequence[str]) -> PartitionContents:
    order = _hash(np.ascontiguousarray(samples.labels).tobytes())
    rows = np.unique(samples.labels).tolist() if names else []
    classes: dict[str, Sequence[int]] = {
        text_from(names[row]): np.flatnonzero(samples.labels == row).tolist() for row in rows
    }
    most = max(2, _READ_SAMPLES // max(1, len(classes)))
    found = {
        name: f"{len(places)} {_samples(samples, places, most)}"
        for name, places in (classes or {"": range(len(samples))}).items()
    }
    return PartitionContents(found, order)


def _count(content: str) -> int:
    return int(content.partition(" ")[0])


def _samples(samples: "Samples", places: Sequence[int], most: int) -> str:
    """Return the hash of some samples, of which at most so many are read."""
    names = _without_folder([text_from(samples.name(at)) for at in places])
    lines = [f"{name}\t{samples.stamp(at)}" for name, at in zip(names, places, strict=True)]
    read = [samples.sample_id(at) for at in places[:: max(1, -(-len(places) // most))]]
    return _hash("\n".join([*lines, *read]).encode())


def _without_folder(names: Sequence[str]) -> list[str]:
    """Return names without the folder that all files among them are in."""
    folders = {name.rpartition("/")[0] for name in names if name.startswith("/")}
    begin = commonpath(folders) if folders else ""
    return [name.removeprefix(begin) for name in names]


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _is_there(value: Any) -> bool:
    return isinstance(value, str) and kind_of(value) != "nothing"


def _content(value: Any) -> Any:
    """Return the hash of a file's content, or of a folder's files; what is no absolute path stands for itself."""
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    if Path(value).is_dir():
        files = sorted(file for file in Path(value).iterdir() if file.is_file())
        return [[file.name, _content(str(file))] for file in files]
    try:
        with Path(value).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise TaskError(f"{value}: cannot be read ({error.strerror or error}): the task needs it") from error
