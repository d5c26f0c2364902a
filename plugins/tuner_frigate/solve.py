"""Solve for the last layer of a model of Frigate's, from features of each photo and its mirror image in int8.

Nothing is held out: each photo is judged by the layer that all others give, exactly (leave-one-out).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.distribution import offered
from tuner.errors import TaskError, TrainingError, UsageError
from tuner.machine.process_memory import return_freed
from tuner.metrics import percent
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionHead, UnionSettings, union_head
from tuner.search.listener import Listener
from tuner.units import format_bytes
from tuner_frigate.layout import LABELS, MODEL, SIDE, FrigateModel, install, square
from tuner_frigate.network import MEAN, STD, mobilenet_v2, weights_of

#: Photos that the ranges of int8 are taken from, at equal distances; the written file is compared on them too.
CALIBRATED = 32
#: Share of wrong photos from which weights alone in int8 are tried too, which takes a photo twice the time.
MOST_WRONG = 0.05
#: Share that int8 throughout may cost where they are tried; and by how much fewer of the mirrored photos may be right,
#: for these to be learned too.
MOST_LOSS = 0.01
#: How much a probability of the file may differ from that of the layer that was solved for: one is a 255th.
MOST_DIFFERENCE = 0.02


@dataclass(frozen=True, eq=False)
class Layer:
    """A last layer that is solved for.

    Attributes:
        features: What it reads of each photo, float32 [n, features].
        mirrored: What it reads of each photo mirrored.
        rows: Class of each photo, int64 [n].
        classes: Number of classes.
    """

    features: Floats
    mirrored: Floats
    rows: Labels
    classes: int

    @cached_property
    def settings(self) -> UnionSettings:
        """What is solved: of several kinds and penalties, the best on photos that are left out."""
        return chosen(self._domain(self.features, self.rows), self._known, UnionSettings())

    @cached_property
    def plain(self) -> UnionHead:
        """The layer of the photos as they are, and what it answers to photos that are left out."""
        return union_head(self._nothing, self._domain(self.features, self.rows), self._known, self.settings)

    @property
    def right(self) -> float:
        """Share of the photos that are right, each by the layer that the others give."""
        return self._share(self.plain.left_out)

    @cached_property
    def head(self) -> LinearHead:
        """The layer, of mirrored photos too unless the plain one takes them for other classes, as of left and right."""
        if self._share(self.plain.head.scores(self.mirrored)) < self.right - MOST_LOSS:
            return self.plain.head
        both = self._domain(np.concatenate([self.features, self.mirrored]), np.tile(self.rows, 2))
        return union_head(self._nothing, both, self._known, self.settings).head

    @property
    def _nothing(self) -> LinearHead:
        return LinearHead(np.zeros((self.classes, self.features.shape[1])), np.zeros(self.classes))

    @property
    def _known(self) -> Domain:
        return Domain.empty(self.features.shape[1], self.classes, 1.0)

    def _domain(self, features: Floats, rows: Labels) -> Domain:
        step = step_of(features)
        return Domain(coded(features, step).astype(np.int16), rows, self.classes, step)

    def _share(self, scores: Array) -> float:
        return float(np.mean(scores.argmax(axis=1) == self.rows))


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A model of Frigate's with a last layer that was solved for.

    Attributes:
        labels: Names of its classes.
        files: The photos that were read.
        layer: The layer, by the network of the file.
        other: By the network in int8 throughout, where weights alone are in int8; else None.
        size: Bytes of the file.
        seconds: Least time of a photo, on one thread.
        unread: Photos that cannot be read.
        kept: Frigate's files from before.
        target: Folder of the new ones.
    """

    labels: tuple[str, ...]
    files: tuple[Path, ...]
    layer: Layer
    other: Layer | None
    size: int
    seconds: float
    unread: tuple[Path, ...]
    kept: tuple[Path, ...]
    target: Path

    def lines(self) -> Iterator[str]:
        """Return how good it is, which photos hurt, and whether there are enough."""
        layer, count = self.layer, len(self.files)
        yield (
            f"{percent(layer.right, count)} of {count:,} photos are right, each by what the others teach "
            f"({layer.settings.text})"
        )
        yield f"{MODEL}: {format_bytes(self.size)} in int8, {1e3 * self.seconds:.3g} ms a photo on one thread"
        if self.other is not None:
            other = percent(self.other.right)
            yield f"  only the weights are in int8, all is computed in float32: int8 throughout has {other}"
        if (findings := offered("tuner.findings").get("check")) is not None:
            yield from findings.load()(layer.features, layer.rows, [str(path) for path in self.files], self.labels)


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
    photos = [(row, path) for row, paths in enumerate(found.values()) for path in paths]
    network = mobilenet_v2(weights_of(weights), SIDE, len(found))
    listener.phase("quantising the network")
    places = {round(at) for at in np.linspace(0, len(photos) - 1, min(CALIBRATED, len(photos)))}
    some = {at: _pixels(photos[at][1]) for at in sorted(places)}
    readable = (pixels for _, path in photos if (pixels := _pixels(path)) is not None)
    seen = [pixels for pixels in some.values() if pixels is not None] or list(islice(readable, 1))
    if not seen:
        raise TaskError(f"none of the {len(photos):,} photos can be read: replace them")
    listener.phase("running the network")
    tried = []
    for own in writer.load()(network.nodes, network.constants, network.shapes, MEAN, STD, seen):
        answer = own.features()
        layer, files = _layer(photos, some, answer, listener)
        tried.append((own, answer, layer))
        if layer.right >= 1 - MOST_WRONG:
            break
    lost = tried[-1][2].right - tried[0][2].right > MOST_LOSS
    own, answer, layer = tried[-1 if lost else 0]
    content, labels = own.file(layer.head, tuple(found))
    seconds = _compared(own.answers(content), layer.head, answer, seen)
    kept = install({MODEL: content, LABELS: labels.encode()}, model.target)
    read = set(files)
    unread = tuple(path for _, path in photos if path not in read)
    other = tried[0][2] if lost else None
    return Solved(tuple(found), files, layer, other, len(content), seconds, unread, tuple(kept), model.target)


def _layer(
    photos: Sequence[tuple[int, Path]],
    some: Mapping[int, Array | None],
    answer: Callable[[Array], Floats],
    listener: Listener,
) -> tuple[Layer, tuple[Path, ...]]:
    """Return the layer of a network, and the photos that could be read; `some` were read before."""
    features, mirrored, rows, files = list[Floats](), list[Floats](), list[int](), list[Path]()
    for at, (row, path) in enumerate(photos):
        pixels = some[at] if at in some else _pixels(path)
        if pixels is not None:
            features.append(answer(pixels))
            mirrored.append(answer(pixels[:, ::-1]))
            rows.append(row)
            files.append(path)
        listener.step("photos", at + 1, len(photos))
    found = set(rows)
    for row, path in photos:
        if row not in found:
            raise TaskError(f"none of the photos in {path.parent} can be read: replace them, or remove the class")
    return Layer(np.stack(features), np.stack(mirrored), np.array(rows), 1 + max(rows)), tuple(files)


def _pixels(path: Path) -> Array | None:
    """Return a photo as Frigate's model sees it, uint8 [height, width, 3]; None of one that cannot be read."""
    image = square(path)
    return None if image is None else np.asarray(image)


def _compared(
    answers: Callable[[Array], Floats],
    head: LinearHead,
    features: Callable[[Array], Floats],
    photos: Sequence[Array],
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
