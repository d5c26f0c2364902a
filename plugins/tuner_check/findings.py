"""A task's local samples, looked at: which labels the others contradict, and what more samples would bring."""

import csv
import io
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.bundle.tensors import read_tensors
from tuner.commands.limits import NO_LIMITS, CommandLimits
from tuner.errors import TaskError
from tuner.files import write_private
from tuner.machine.control_group import usable_processors
from tuner.plugin.core import build_host
from tuner.reading import kind_of, text_from
from tuner.search.processes.remote import open_remote
from tuner.store.store import open_store
from tuner_check.curves import Gain, gain_of_all, gain_of_class
from tuner_check.left_out import Evidence

#: A label is listed where it is wrong with this probability.
DOUBTED = 0.1
PARTITIONS = ("local.train", "local.val")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A sample whose label may be wrong.

    Attributes:
        file: Its file, or place in an array.
        label: Its label.
        probability: Of that label, if the sample had none, by all others.
        instead: What the others say.
        instead_probability: Of that.
        wrong: Probability that its label is wrong.
    """

    file: str
    label: str
    probability: float
    instead: str
    instead_probability: float
    wrong: float


@dataclass(frozen=True, slots=True)
class ClassFinding:
    """A class of the user's.

    Attributes:
        label: Its name.
        samples: Number of its samples.
        found: Share of these that is found where they are left out.
        gain: What further ones would bring; None where there are too few to tell.
    """

    label: str
    samples: int
    found: float
    gain: Gain | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What is found in a task's local samples.

    Attributes:
        samples: Number of samples that were looked at.
        found: Mean of the classes' shares that are found where samples are left out.
        suspects: Samples whose label may be wrong, the likeliest first.
        wrong: Number of labels among these that are expected to be wrong.
        classes: The user's classes, the largest likely gain first.
        gain: What further samples of every class would bring to `found`; None where there are too few to tell.
    """

    samples: int
    found: float
    suspects: tuple[Suspect, ...]
    wrong: float
    classes: tuple[ClassFinding, ...]
    gain: Gain | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON's types."""
        return asdict(self)


def check(task: str, more: int, limits: CommandLimits = NO_LIMITS) -> Findings:
    """Look at all local training and validation samples, by a ridge head on the given model's features.

    Args:
        task: As for ``tuner run``.
        more: Number of further samples to estimate gains of.
        limits: What the command may take.

    Raises:
        TunerError: The task or its model cannot be used, or its samples have no classes of the user's.
    """
    host = build_host(end=limits.end)
    name = next(iter(host.backends))
    opening = open_remote(host, task, [name], kill_at=limits.end, memory_bytes=limits.memory_bytes)
    files, features, labels = list[str](), list[np.ndarray[Any, Any]](), list[np.ndarray[Any, Any]]()
    with tempfile.TemporaryDirectory() as folder, opening as sessions, closing(open_store()) as store:
        outline = sessions[name].task
        lacks = TaskError(f"{task} has no label for each local sample, which a check needs: give one class a sample")
        outline.targets.need_one_class(lacks)
        if not outline.info.labelled:
            raise lacks
        for partition in PARTITIONS:
            path = Path(folder) / f"{partition}.safetensors"
            asked = {"partition": partition, "store": store, "threads": usable_processors(), "file": path}
            files += sessions[name].ask("inputs of the head", **asked)
            tensors = read_tensors(path, ("features", "labels"))
            features.append(tensors["features"])
            labels.append(tensors["labels"])
    return findings_of(np.concatenate(features), np.concatenate(labels), files, outline.labels, more)


def findings_of(
    features: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    files: Sequence[str],
    names: Sequence[str],
    more: int,
) -> Findings:
    """Return what is found in samples.

    Args:
        features: float [n, features].
        labels: Rows of the union head, int64 [n].
        files: Of each sample.
        names: Of each row.
        more: Number of further samples to estimate gains of.

    Raises:
        TaskError: There are fewer than two classes.
    """
    rows, y = np.unique(labels, return_inverse=True)
    own = [names[row] for row in rows]
    if len(own) < 2:  # noqa: PLR2004 - others contradict only where there are others
        raise TaskError(f"a check needs local samples of two classes, got {len(own)}: give more")
    evidence = Evidence.of(features, y)
    probabilities = evidence.probabilities
    suspects = tuple(
        Suspect(
            text_from(files[at]),
            own[y[at]],
            float(probabilities[at, y[at]]),
            own[int(probabilities[at].argmax())],
            float(probabilities[at].max()),
            float(evidence.wrong[at]),
        )
        for at in evidence.doubted(DOUBTED)
    )
    classes = [
        ClassFinding(label, int(count), float(found), gain_of_class(evidence, row, more))
        for row, (label, count, found) in enumerate(zip(own, evidence.counts, evidence.found, strict=True))
    ]
    classes.sort(key=lambda one: -one.gain.likely if one.gain else -np.inf)
    wrong = sum(one.wrong for one in suspects)
    return Findings(len(y), evidence.accuracy, suspects, wrong, tuple(classes), gain_of_all(evidence, more))


def write_suspects(suspects: Sequence[Suspect], out: Path) -> None:
    """Write suspects as a table with commas, one a line below their names.

    Raises:
        TaskError: The file exists.
    """
    if kind_of(out) != "nothing":
        raise TaskError(f"{out} exists: give another file, or remove it")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Suspect.__slots__)
    writer.writerows(asdict(suspect).values() for suspect in suspects)
    write_private(out, text.getvalue())
