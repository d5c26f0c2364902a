"""The labels that a bundle is to have, in terms of those that it has."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Floats, Labels, RowNumbers
from tuner.bundle.format import FILE, MODEL, WEIGHTS, Bundle, new_folder, successor
from tuner.bundle.info import UnknownInfo
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.bundle.tensors import read_tensors
from tuner.files import write_private
from tuner.ort.session import LOGITS
from tuner.ridge.solve import LinearHead
from tuner.ridge.union import Domain, regression_head
from tuner.runtime.train.files import CHECK, OWN, REPLAY, replay_of
from tuner.targets import Regression, Targets
from tuner.targets.strata import moved, presence
from tuner_labels.onnx_rows import Resize, resized

#: How much a row that stands for two is pulled to their mean, in samples.
JOINED_RIDGE = 1.0
#: Threshold of a new label, where a sample may have several.
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class LabelChange:
    """What a change of a bundle's labels came to.

    A value is None where it is not known: scores of a renamed label, and where there are no samples to measure on.

    Attributes:
        bundle: Folder of the new bundle.
        name: Name of the task.
        labels: Labels of the new bundle.
        samples: Number of the label's own samples: that were added, that left, or that are now of one label.
        found: Share of the samples of the new label that get it, each from a head that was solved without it.
        before: Score of the other labels' samples before the change, each answered by a head without it.
        after: The same after the change.
        others: Number of these samples.
        known_before: Score of the global check samples before the change.
        known_after: The same after the change.
        seconds: Time that the change took.
        unseen: Other labels of which a bundle with a trained tail has no samples: what they lose is not measured, and
            the new label is held back.
    """

    bundle: str
    name: str
    labels: tuple[str, ...]
    samples: int = 0
    found: float | None = None
    before: float | None = None
    after: float | None = None
    others: int = 0
    known_before: float | None = None
    known_after: float | None = None
    seconds: float = 0.0
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """The labels that a bundle is to have.

    Attributes:
        labels: Their names.
        rows: Numbers of the old labels that each of them stands for; none of a new one.
        count: Number of the old labels.
    """

    labels: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    count: int

    @property
    def places(self) -> Mapping[int, list[int]]:
        """New numbers of each old label; none of one that goes."""
        rows = list(enumerate(self.rows))
        return {old: [new for new, olds in rows if old in olds] for old in range(self.count)}

    @property
    def changed(self) -> tuple[list[int], list[int]]:
        """Numbers of the labels that do not stay as they are: of the old ones, and of the new ones."""
        new = [row for row, olds in enumerate(self.rows) if len(olds) != 1]
        kept = {olds[0] for olds in self.rows if len(olds) == 1}
        return [old for old in range(self.count) if old not in kept], new

    def moved(self, labels: Labels) -> tuple[RowNumbers, Labels]:
        """Return which samples stay, int64 [n], and their new labels; a sample goes with the last label that it has."""
        has, places = presence(labels, np.arange(self.count)), self.places
        stays = has[:, [old for old, new in places.items() if new]].any(axis=1) | ~has.any(axis=1)
        return np.flatnonzero(stays), moved(labels[stays], places, len(self.labels))

    def stored(self, bundle: Bundle) -> dict[str, Replay]:
        """Return the samples that a bundle stores, with their new labels, by file."""
        made = dict[str, Replay]()
        for name in {REPLAY, CHECK, OWN} & bundle.info.files.keys():
            samples = replay_of(bundle, name)
            kept = samples.select(bundle.targets.staying(self.moved(samples.labels)[0], len(samples)))
            made[name] = replace(kept, labels=moved(kept.labels, self.places, len(self.labels)))
        return made

    def head(self, head: LinearHead, features: Array, bias: float = 0.0) -> LinearHead:
        """Return a head with these labels; a new one has zeros and a bias.

        The row of one that stands for several is fitted to log Σ exp of their logits on features, float [n, features].
        """
        rows = [_row(head, olds, features, bias) for olds in self.rows]
        return LinearHead(np.concatenate([row.weight for row in rows]), np.concatenate([row.bias for row in rows]))

    def thresholds(self, given: Sequence[float]) -> tuple[float, ...]:
        """Return the thresholds of the labels, where the bundle has some."""
        if not given:
            return ()
        own = [[given[old] for old in olds] or [THRESHOLD] for olds in self.rows]
        return tuple(float(np.mean(values)) for values in own)

    def label_map(self, given: Mapping[str, Sequence[str]], old: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return a map of labels by the new names; what stood for nothing else than a label that goes is left out."""
        names = {label: [self.labels[row] for row in self.places[at]] for at, label in enumerate(old)}
        made = dict[str, tuple[str, ...]]()
        for key, labels in given.items():
            after = tuple(new for label in labels for new in names[label])
            for name in names.get(key, [key]) if key not in set(self.labels) - set(old) else []:
                made[name] = tuple(dict.fromkeys((*made.get(name, ()), *after)))
        return {name: labels for name, labels in made.items() if labels}


def new_labels(bundle: Bundle, draft: Draft) -> dict[str, Any]:
    """Return the fields of ``bundle.json`` that have labels, as a draft has them."""
    info = bundle.info
    return {
        "labels": draft.labels,
        "label_thresholds": draft.thresholds(info.label_thresholds),
        "label_map": draft.label_map(info.label_map, bundle.labels),
    }


@contextmanager
def relabelled(
    bundle: Bundle,
    draft: Draft,
    out: Path,
    rows: Mapping[str, Floats],
    stored: Mapping[str, Replay],
    contents: Mapping[str, Callable[[], bytes]],
    scores: DeviceScores | None = None,
    unknown: UnknownInfo | None = None,
) -> Iterator[Path]:
    """Give a folder with a bundle's files for other labels, to check; see `successor`.

    Args:
        bundle: The bundle as it is.
        draft: Its new labels.
        out: Folder of the new bundle.
        rows: Weight and bias of its head, by name.
        stored: Samples that it stores, by file; see `Draft.stored`.
        contents: What else is replaced.
        scores: Values before and after; None where the bundle's hold.
        unknown: From where on a sample is none of the labels, where that stays.
    """
    tensors, train = read_tensors(bundle.file(WEIGHTS), finite=False), bundle.info.train
    model = Resize(len(draft.labels), {LOGITS: -1}, {f"tail.{name}": value for name, value in rows.items()})
    files = {
        MODEL: lambda: resized(bundle.file(MODEL).read_bytes(), model),
        WEIGHTS: lambda: save({**tensors, **rows}),
        **contents,
    }
    if train is not None:
        own = len(stored[OWN]) if OWN in stored else train.own_samples
        counts = len(stored[REPLAY]), len(stored[CHECK]), own
        train = replace(train, replay_samples=counts[0], check_samples=counts[1], own_samples=counts[2])
    with successor(bundle, out, files, scores, unknown=unknown, train=train, **new_labels(bundle, draft)) as part:
        for name, samples in stored.items():
            samples.save(part / name)
        yield part


def share_found(targets: Targets, logits: Array, labels: Labels, new: Sequence[int]) -> tuple[float | None, int]:
    """Return the share of a new label's samples that get it, and their number; None where there is no new label."""
    numbers = np.arange(logits.shape[1])
    has = presence(labels, numbers)[:, new].any(axis=1)
    got = np.asarray(presence(targets.answers(logits[has]), numbers)[:, new].any(axis=1))
    return (float(got.mean()) if len(got) else None), int(has.sum())


@contextmanager
def made_from(bundle: Bundle, out: Path) -> Iterator[Path]:
    """Give a folder to make a bundle in, as ``made``; it is put in place alone, with `bundle` as its parent."""
    with new_folder(out) as part:
        yield part
        for path in part.iterdir():
            if path.name != "made":
                shutil.rmtree(path)
        for path in (part / "made").iterdir():
            path.rename(part / path.name)
        (part / "made").rmdir()
        content = json.loads((part / FILE).read_text(encoding="utf-8"))
        write_private(part / FILE, json.dumps({**content, "parent": bundle.identity}, indent=1))


def _row(head: LinearHead, olds: Sequence[int], features: Array, bias: float) -> LinearHead:
    """Return the row that stands for some rows of a head."""
    if not olds:
        return LinearHead(np.zeros((1, head.weight.shape[1])), np.array([bias]))
    rows = list(olds)
    mean = LinearHead(head.weight[rows].mean(0, keepdims=True), head.bias[rows].mean(0, keepdims=True))
    if len(rows) == 1 or not len(features):
        return mean
    targets = np.logaddexp.reduce(head.scores(features)[:, rows], axis=1, keepdims=True)
    nothing = Domain.empty(features.shape[1], 1, 1.0, Regression())
    return regression_head(mean, nothing.added(features.astype(np.float64), targets), nothing, JOINED_RIDGE)[0]
