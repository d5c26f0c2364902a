"""The samples of a user, and what an ONNX classifier computes of them at its cuts: each is decoded and run once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.bundle.info import BundleInfo
from tuner.distribution import install_command
from tuner.errors import TaskError
from tuner.machine.control_group import usable_processors
from tuner.ort.session import FEATURES, Session
from tuner.reading import kind_of
from tuner.search.setting import RUN_RESERVE
from tuner.targets import SINGLE_LABEL
from tuner.task.data.entry import EntrySource
from tuner.task.data.samples import Samples
from tuner.task.file.load import open_task
from tuner.task.file.toml import task_from_values
from tuner.task.inputs import input_kind
from tuner.task.mixing import filling_order, mixed_indices
from tuner.task.spec import InputSpec
from tuner.task.task import Task
from tuner.units import format_bytes, format_limit
from tuner_instant.classifier import Classifier, feature_name
from tuner_instant.cuts import Cut
from tuner_instant.features import Codes, Gathered, digest_of

#: Known samples that are read to learn from, and as many to see what was forgotten.
MOST_KNOWN = 400
PARTITIONS = {"val": ("val", "valid", "validation"), "test": ("test",)}
CLASSES = ("classes.tsv", "classes.csv")


def task_of(data: Path, model: Path | None, known: Path | None, classes: Path | None) -> tuple[Task, Classifier]:
    """Return the task of a user's photos, or of a task file, and its model.

    Args:
        data: Folder of class folders, or of partitions of such; or a task file, which says all but the model.
        model: The ONNX file; a task file may name it.
        known: Folder of photos of classes that the model knows.
        classes: File that gives the row of each of these in the model's head; by default one next to the photos.

    Raises:
        TaskError: There are no such data, or no model.
    """
    if kind_of(data) == "file" or kind_of(data / "task.toml") == "file":
        if known is not None or classes is not None:
            raise TaskError(f"{data} is a task, which names the known classes itself: leave --global and --classes out")
        task = open_task(str(data), look=False)
        kind, name = task.model.source or ("", "")
        if model is None and kind != "onnx":
            raise TaskError(
                f"{data} names no ONNX file as its model: give one with --model; or, for other networks: "
                f"{install_command('tune')}"
            )
        return task, Classifier.open(model or Path(name))
    if model is None:
        raise TaskError("the model is missing: give the ONNX file of a classifier with --model")
    if classes is not None and known is None:
        raise TaskError("--classes says which rows the known classes have: give photos of these with --global")
    classifier = Classifier.open(model)
    size = classifier.shape[-1]
    local, others = _entries(data), None if known is None else _entries(known)
    source = EntrySource(Path(local["train"]), "train", InputSpec(local["kind"]), SINGLE_LABEL)
    settings: dict[str, Any] = {**input_kind(local["kind"]).proposed(source), "skip_unreadable": True}
    settings |= {} if size is None else {"size": size}
    if known is not None and others is not None:
        beside = [place / name for place in (known, Path(others["train"]).parent) for name in CLASSES]
        listed = classes or next((path for path in beside if kind_of(path) == "file"), None)
        others |= {} if listed is None else {"classes": str(listed.absolute())}
    if any("val" not in one for one in (local, others or local)):  # photos of the same minute stay on one side
        settings["recording"] = "exif"
    values: dict[str, Any] = {"model": {"weights": str(model.absolute())}, "local": local, "input": settings}
    values |= {} if others is None else {"global": others}
    values["name"] = data.resolve().name
    return task_from_values(values, data.absolute() / "task.toml", look=False), classifier


def _entries(folder: Path) -> dict[str, str]:
    """Return the entries of a task file for a folder of photos."""
    if kind_of(folder) != "folder":
        raise TaskError(f"{folder}: no such folder: give a folder of photos with a folder for each class")
    train = folder / "train"
    if kind_of(train) != "folder":
        return {"kind": "images", "train": str(folder.absolute())}
    found = {"kind": "images", "train": str(train.absolute())}
    for part, names in PARTITIONS.items():
        there = next((folder / name for name in names if kind_of(folder / name) == "folder"), None)
        found |= {} if there is None else {part: str(there.absolute())}
    return found


def chosen_rows(task: Task) -> dict[str, RowNumbers]:
    """Return the places of the samples that are read of each partition; of known ones, some of every class."""
    rows = {name: np.arange(len(samples)) for name, samples in task.partitions() if name != "global.test"}
    if task.global_ is not None:
        rows["global.train"] = mixed_indices(task.global_.train.labels, min(1.0, MOST_KNOWN / len(task.global_.train)))
        rows["global.val"] = filling_order(task.global_.val.labels)[:MOST_KNOWN]
    return rows


def shape_of(task: Task) -> tuple[int, ...]:
    """Return the shape of one sample: of photos by their size, as the first may be one that cannot be read."""
    side = task.input.size
    return (3, side, side) if task.input.kind == "images" and side else task.input_shape


def bytes_of(samples: int, cuts: Sequence[Cut], widths: Sequence[int]) -> int:
    """Return the size of the features of samples at some cuts."""
    return 2 * len(widths) * samples * sum(cut.features for cut in cuts)


def gather(
    task: Task,
    classifier: Classifier,
    step: Callable[[str, float, float], object],
    widths: tuple[int, ...] = (32,),
    most_bytes: int | None = None,
    *,
    whole: bool = False,
) -> tuple[Gathered, tuple[str, ...]]:
    """Run samples through the network once, on every processor at once, each in one thread.

    Args:
        task: The task.
        classifier: Its model.
        step: Called with how many were run.
        widths: Bits of the weights of the networks that see each sample.
        most_bytes: What the run's folder may take, which holds them; None for no limit.
        whole: Whether only the whole network counts, and no shallower cut.

    Returns:
        What was computed; and the samples that cannot be read, each with the reason: they are left out.

    Raises:
        TunerError: The model cannot run them, or a partition has none that can be read.
    """
    rows, shape = chosen_rows(task), shape_of(task)
    cuts = classifier.cuts(shape)[-1 if whole else 0 :]
    names = [FEATURES] if len(cuts) == 1 else [feature_name(at) for at in range(len(cuts))]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "features.onnx"
        sessions = [Session(classifier.write(path, cuts, bits=width), 1) for width in widths]
    partitions, done, of = dict(task.partitions()), 0, sum(map(len, rows.values()))
    need = bytes_of(of, cuts, widths) + sum(partitions[name].labels[rows[name]].nbytes for name in rows)
    if most_bytes is not None and need + RUN_RESERVE > most_bytes:
        raise TaskError(
            f"--storage {format_limit(most_bytes)}: the features of all samples take {format_bytes(need)}, and the "
            f"other files of the run up to {format_bytes(RUN_RESERVE)}: give more"
        )
    codes = [Codes(of, cut.features) for cut in cuts * len(widths)]
    labels, parts, left_out = list[Labels](), dict[str, tuple[int, int]](), list[str]()

    def run(job: tuple[Samples, int]) -> list[Floats]:
        pixels = _batch(task, *job, left_out)
        return [] if pixels is None else [one for session in sessions for one in session.run(pixels, *names)]

    kept = 0
    with ThreadPoolExecutor(usable_processors()) as pool:
        for name, places in rows.items():
            samples, begin, here = partitions[name], kept, list[int]()
            for place, computed in zip(places, pool.map(run, [(samples, int(at)) for at in places]), strict=True):
                done += 1
                step("samples", done, of)
                if not computed:
                    continue
                for own, features in zip(codes, computed, strict=True):
                    own.put(kept, features[0])
                here.append(int(place))
                kept += 1
            if not here:
                raise TaskError(f"{name}: none of its {len(places)} samples can be read, such as {left_out[-1]}")
            parts[name] = begin, kept
            labels.append(samples.labels[here])
    info = BundleInfo(
        name=task.name,
        labels=task.labels,
        input=task.input,
        input_shape=shape,
        loss=task.loss,
        label_map=dict(task.label_map),
    )
    gathered = Gathered(
        info,
        classifier.path.absolute(),
        digest_of(classifier.path),
        task.head_rows,
        cuts,
        widths,
        parts,
        np.concatenate(labels),
        tuple(own.codes[:kept] for own in codes),
        tuple(own.step or 1.0 for own in codes),
    )
    return gathered, tuple(left_out)


def _batch(task: Task, samples: Samples, place: int, left_out: list[str]) -> Floats | None:
    try:
        return task.batch(samples, (place,))
    except TaskError as error:
        left_out.append(str(error).rpartition(": ")[0])  # without the way out
        return None
