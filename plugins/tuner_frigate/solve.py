"""Solve for the last layer of a model of Frigate's: each photo runs once through the network in int8, which judges it.

Nothing is held out: each photo is answered by the layer that all others give, exactly (leave-one-out).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.distribution import offered
from tuner.errors import TaskError, TrainingError, UsageError
from tuner.metrics import percent
from tuner.process_memory import return_freed
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.search.listener import Listener
from tuner.units import format_bytes
from tuner_frigate.layout import LABELS, MODEL, SIDE, FrigateModel, install, square
from tuner_frigate.network import MEAN, STD, mobilenet_v2, weights_of

#: Photos that the ranges of int8 are taken from, at equal distances; the written file is compared on them too.
CALIBRATED = 32
#: How much a probability of the file may differ from that of the layer that was solved for: one is a 255th.
MOST_DIFFERENCE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A model of Frigate's with a last layer that was solved for.

    Attributes:
        labels: Names of its classes.
        files: The photos that were read.
        rows: Class of each, int64 [n].
        features: What the last layer reads of each, float64 [n, features].
        left_out: Logits of each by the layer that the others give, float64 [n, classes].
        text: What is solved.
        size: Bytes of the file.
        seconds: Least time of a photo, on one thread.
        unread: Photos that cannot be read.
        kept: Frigate's files from before.
        target: Folder of the new ones.
    """

    labels: tuple[str, ...]
    files: tuple[Path, ...]
    rows: Labels
    features: Doubles
    left_out: Doubles
    text: str
    size: int
    seconds: float
    unread: tuple[Path, ...]
    kept: tuple[Path, ...]
    target: Path

    def lines(self) -> Iterator[str]:
        """Return how good it is, which photos hurt, and whether there are enough."""
        right = float(np.mean(self.left_out.argmax(axis=1) == self.rows))
        yield (
            f"{percent(right, len(self.rows))} of {len(self.rows):,} photos are right, each by what the others teach "
            f"({self.text})"
        )
        yield f"{MODEL}: {format_bytes(self.size)} in int8, {1e3 * self.seconds:.3g} ms a photo on one thread"
        if (findings := offered("tuner.findings").get("check")) is not None:
            yield from findings.load()(self.features, self.rows, [str(path) for path in self.files], self.labels)


def solve(model: FrigateModel, weights: str, listener: Listener) -> Solved:
    """Solve for the last layer, and write Frigate's two files.

    Args:
        model: The model.
        weights: File of MobileNetV2's weights, or `tuner_frigate.network.FETCHED`.
        listener: Receives progress.

    Raises:
        TunerError: The photos or the weights cannot be used, or the written file answers otherwise.
    """
    return_freed()
    writer = offered("tuner.networks").get("tflite")
    if writer is None:
        raise UsageError("no plugin that is on writes TFLite files: switch on tflite")
    found = model.photos()
    photos = _Photos(found)
    network = mobilenet_v2(weights_of(weights), SIDE, len(found))
    listener.phase("quantising the network")
    some = {at: pixels for at in photos.some() if (pixels := photos.read(at)) is not None}
    quantised = writer.load()(network.nodes, network.constants, network.shapes, MEAN, STD, [*some.values()])
    del network  # in int8 it takes a quarter
    listener.phase("running the network")
    features, rows, files = list[Array](), list[int](), list[Path]()
    for at, (row, path) in enumerate(photos.all):
        pixels = some.get(at) if at in some else photos.read(at)
        if pixels is not None:
            features.append(quantised.features(pixels))
            rows.append(row)
            files.append(path)
        listener.step("photos", at + 1, len(photos.all))
    for row, (name, paths) in enumerate(found.items()):
        if row not in rows:
            raise TaskError(
                f"none of the photos in {paths[0].parent} can be read: replace them, or remove the class {name}"
            )
    listener.phase("solving for the last layer")
    local = _domain(np.stack(features), np.array(rows), len(found))
    known = Domain.empty(local.codes.shape[1], local.outputs, local.step)
    settings = chosen(local, known, UnionSettings())
    nothing = LinearHead(np.zeros((local.outputs, local.codes.shape[1])), np.zeros(local.outputs))
    head = union_head(nothing, local, known, settings)
    content, labels = quantised.file(head.head, tuple(found))
    seconds = _compared(quantised.answerer(content), head.head, quantised.features, [*some.values()])
    kept = install({MODEL: content, LABELS: labels.encode()}, model.target)
    return Solved(
        tuple(found), tuple(files), local.labels, local.features, head.left_out, settings.text, len(content), seconds,
        tuple(photos.unread), tuple(kept), model.target,
    )  # fmt: skip


class _Photos:
    """Photos with their classes, read one by one; `unread` are those that cannot be."""

    def __init__(self, found: Mapping[str, list[Path]]) -> None:
        self.all = [(row, path) for row, paths in enumerate(found.values()) for path in paths]
        self.unread: list[Path] = []

    def some(self) -> list[int]:
        """Return the places of `CALIBRATED` of them."""
        count = len(self.all)
        return sorted({round(at) for at in np.linspace(0, count - 1, min(CALIBRATED, count))})

    def read(self, at: int) -> Array | None:
        """Return a photo as Frigate's model sees it, uint8 [height, width, 3]; None of one that cannot be read."""
        path = self.all[at][1]
        image = None if path in self.unread else square(path)
        if image is None and path not in self.unread:
            self.unread.append(path)
        return None if image is None else np.asarray(image)


def _domain(features: Array, rows: Labels, classes: int) -> Domain:
    step = step_of(features)
    return Domain(coded(features, step).astype(np.int16), rows, classes, step)


def _compared(
    answers: Callable[[Array], Array], head: LinearHead, features: Callable[[Array], Array], photos: list[Any]
) -> float:
    """Return the seconds of a photo by the written file, which must answer as the layer does."""
    seconds = []
    for photo in photos:
        begun = time.perf_counter()
        own = answers(photo)
        seconds.append(time.perf_counter() - begun)
        logits = head.scores(features(photo)[None])[0]
        powers = np.exp(logits - logits.max())
        difference = float(np.abs(own - powers / powers.sum()).max())
        if not difference <= MOST_DIFFERENCE:
            raise TrainingError(f"the written file answers otherwise than the layer, by {difference:.2g}: report this")
    return min(seconds)  # others share the processor
