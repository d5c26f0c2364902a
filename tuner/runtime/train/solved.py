"""Solve for a bundle's head again on the device: a round is one solution, and a sample can be forgotten."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.bundle.format import WEIGHTS, Bundle
from tuner.bundle.info import FOLDS, TrainInfo, TrainKind, UnknownInfo
from tuner.bundle.tensors import open_tensors, read_tensors
from tuner.errors import BundleError, TrainingError
from tuner.ort.unknown import distance_nodes
from tuner.plan.parts import RecipePlan
from tuner.ridge.solve import LinearHead
from tuner.ridge.solver import realised
from tuner.ridge.sums import LARGEST_CODE, MOST_FEATURES, coded
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.ridge.unknown import Familiar, left_out_distances, threshold
from tuner.runtime.infer.personaliser import SampleOrFile
from tuner.runtime.train.base import Batch, Content
from tuner.runtime.train.files import SOLVED
from tuner.runtime.train.tail import Trainer
from tuner.targets.strata import stored
from tuner.task.partition import fold_numbers
from tuner.training.epoch import Watch

#: Format of the file, and the key of its metadata. There is one: safetensors writes several in no fixed order.
FORMAT, ABOUT = 2, "about"
#: Largest difference of codes of one sample, computed in batches of other sizes or with other threads.
SAME = 2
#: Most samples of the user's own; the oldest leave the sums.
MOST_OWN = 10_000
#: Most of the user's samples, and of the others, that tell what is unknown.
MOST_MEASURED = 1000
_PROBED = 16  # features that are compared first


class SolvingTrainer(Trainer):
    """A bundle whose head is solved for: `train` is one solution of all samples, in a fraction of a second.

    The user's samples that the bundle was made from are there already, as codes of their features; `add` adds others,
    and `forget` removes any, as if they had never been there. Arguments, attributes and errors are those of
    `DeviceTrainer`.
    """

    _trainer = "SolvingTrainer"
    _left_out: Callable[[], Doubles]  # logits of the user's samples, each of a head without it
    _plugin: Any = None  # how a plugin solves for the head

    def _open(self, info: TrainInfo) -> None:
        self._weights = read_tensors(self.bundle.file(WEIGHTS), info.weights)
        self._file = SolvedFile.load(self.bundle)
        self._names = info.weights
        features, outputs = self._file.given.weight.shape[::-1]
        shape = self._replay.codec.shape
        if shape != (features,) or len(self._names) != 2:  # noqa: PLR2004 - weight, bias
            raise BundleError(f"{self.bundle.folder} must have a head of {shape} features: export again")
        empty = Domain.empty(features, outputs, self._file.step, self.bundle.targets)
        self._own = self._given = empty.added(self._file.codes, self._file.labels)
        codes = coded(self._replay.read(np.arange(len(self._replay))), self._file.step)
        self._others = empty.added(codes, self._replay.labels)
        self._added = empty.codes
        self._before, self.earlier = self._new, len(self._own)
        self._left_out = lambda: np.zeros((0, outputs))
        if info.kind == TrainKind.SUMS:
            self._plugin = realised("sums")(self.bundle, info, self.plan, self._file.given)

    def __len__(self) -> int:
        """Return the number of samples that were given to `add`."""
        return len(self._added)

    @property
    def samples(self) -> int:
        """Number of the user's samples that the head is solved from."""
        return len(self._own)

    @property
    def labels(self) -> Labels:
        """Labels of these samples, int64 [n], or with several labels a sample [n, labels]."""
        return self._own.labels

    @property
    def left_out(self) -> Doubles:
        """After `train`, the logits of each of these samples by the head without it, float64 [n, labels].

        A plugin's head is without a fifth of the samples at once.
        """
        return self._left_out()

    def forget(self, samples: Sequence[SampleOrFile]) -> int:
        """Remove samples from the sums, bit for bit as if never there; return how many of them the bundle had.

        Call `train` for the head without them, and `save` to write it. The bundle that is here stays: delete it.

        Args:
            samples: As `add` takes them, without labels.

        Raises:
            TunerError: A file cannot be read, or a shape is another one.
        """
        return self._without(coded(self.features(samples), self._file.step))

    def earlier_right(self) -> tuple[Flags, Flags, Flags] | None:
        """Return how heads without them answer the earlier samples; see `DeviceTrainer.earlier_right`."""
        rows = [self._rows_of(code)[:1] for code in self._given.codes]
        still = np.flatnonzero([len(row) for row in rows])  # the others were forgotten, or left for newer ones
        if not len(still) or len(self.left_out) != len(self._own):
            return None
        before = self._solved(self._given)[1]()[still]
        now, right = np.concatenate(rows), self.bundle.targets.are_right
        after, labels = self.left_out[now], self._own.labels[now]
        return (
            right(before.astype(np.float32), labels),
            right(after.astype(np.float32), labels),
            np.zeros(len(now), bool),
        )

    def drop(self, rows: Sequence[int]) -> None:
        """Take samples that were added out again; see `DeviceTrainer.drop`."""
        places = np.asarray(rows, np.int64)
        self._without(self._added[places])
        self._added = np.delete(self._added, places, 0)

    def _fit(self, recipe: RecipePlan, watch: Watch) -> tuple[float, ...]:  # noqa: ARG002 - there are no steps
        """Solve for the head; return its mean loss on the user's samples."""
        # a loss of before would tell of samples that were forgotten since
        self._losses = ()
        head, self._left_out = self._solved(self._own)
        values = (head.weight.astype(np.float32), head.bias.astype(np.float32))
        self._weights = dict(zip(self._names, values, strict=True))
        logits = self._logits(self._own.features.astype(np.float32))[-1].astype(np.float64)
        watch(1, 1)
        return (self.bundle.targets.loss(logits, self._own.labels),)

    def _solved(self, own: Domain) -> tuple[LinearHead, Callable[[], Doubles]]:
        """Return the head of some samples of the user's, and what returns their logits, each left out."""
        if self._plugin is None:
            solved = union_head(self._file.given, own, self._others, self._file.settings)
            return solved.head, lambda: solved.left_out
        return self._plugin.head(own, self._others), cache(partial(self._plugin.left_out, own, self._others))

    def _logits(self, features: Floats) -> Floats:
        weight, bias = (self._weights[name] for name in self._names)
        result: Floats = (features @ weight.T + bias)[None]
        return result

    def _keep(self, batch: Batch) -> None:
        """Add samples to the sums; those that are there already once, with the newer label."""
        codes = coded(batch.features, self._file.step)
        self._added = np.concatenate([self._added, codes])
        for code, label in zip(codes, () if batch.truth is None else batch.truth, strict=True):
            same = self._rows_of(code)
            if np.atleast_2d((self._own.labels[same] == label).T).all(axis=0).any():
                continue
            self._own = self._own.without(same).added(code[None], np.asarray(label)[None])
        excess = max(0, self.samples - MOST_OWN)
        self._own = self._own.without(np.arange(excess)) if excess else self._own

    def _own_samples(self) -> int | None:
        return self.samples

    def _replaced(self) -> Mapping[str, Content]:
        kept = SolvedFile(self._file.given, self._own.codes, self._own.labels, self._file.step, self._file.settings)
        return {**super()._replaced(), SOLVED: kept.content}

    def _unknown(self) -> tuple[bytes, UnknownInfo] | None:
        info = self.bundle.info.unknown
        if info is None or self.bundle.kind.windowed:  # neighbours of one recording, which are alike, cannot be told
            return None
        own, known = self._own.features[-MOST_MEASURED:], self._others.features[:MOST_MEASURED]
        mine, others = (own, self._own.labels[-MOST_MEASURED:]), (known, self._others.labels[:MOST_MEASURED])
        distances = left_out_distances(mine, others, fold_numbers(mine[1], FOLDS))
        made = UnknownInfo(threshold(distances), len(distances), info.reads)
        return distance_nodes(info.reads, Familiar.of(mine, others)), made

    def _without(self, codes: Doubles) -> int:
        """Remove samples by their codes; return how many there were."""
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *map(self._rows_of, codes)]))
        self._own = self._own.without(rows)
        return len(rows)

    def _rows_of(self, code: Doubles) -> RowNumbers:
        """Return where a sample is among the user's, int64 [n]."""
        probed = np.argsort(-np.abs(code))[:_PROBED]
        rows = np.flatnonzero((np.abs(self._own.codes[:, probed] - code[probed]) <= SAME).all(axis=1))
        close: Array = np.abs(self._own.codes[rows] - code).max(axis=1, initial=0.0) <= SAME
        return rows[close]


@dataclass(frozen=True, slots=True, eq=False)
class SolvedFile:
    """Content of ``train/solved.safetensors``; the sums of the codes are taken when it is read.

    Attributes:
        given: The model's head before it was personalised.
        codes: The user's samples, float64 [n, features]; see `tuner.ridge.sums.coded`.
        labels: int64 [n], or uint8 [n, outputs] of ones and zeros with several labels a sample.
        step: What one code is worth.
        settings: How the head is solved, unless a plugin solves for it.
    """

    given: LinearHead
    codes: Doubles
    labels: Labels
    step: float
    settings: UnionSettings

    def content(self) -> bytes:
        """Return the file's content."""
        tensors = {
            "given.weight": self.given.weight.astype(np.float32),
            "given.bias": self.given.bias.astype(np.float32),
            "codes": self.codes.astype(np.int16),
            "labels": stored(self.labels),
        }
        about = json.dumps({"format": FORMAT, "step": self.step, "settings": asdict(self.settings)})
        contents: bytes = save({name: np.ascontiguousarray(value) for name, value in tensors.items()}, {ABOUT: about})
        return contents

    def save(self, folder: Path) -> None:
        """Write the file into a bundle's folder."""
        (folder / SOLVED).write_bytes(self.content())

    @classmethod
    def load(cls, bundle: Bundle) -> "SolvedFile":
        """Read the file of a bundle, whose parts must fit together, and the bundle."""
        path, outputs = bundle.file(SOLVED), len(bundle.labels)
        with open_tensors(path) as file:
            metadata = file.metadata() or {}
        tensors = read_tensors(path)
        try:
            about = json.loads(metadata[ABOUT])
            if about["format"] != FORMAT:
                raise BundleError(
                    f"{path} has format {about['format']!r:.40}, this version reads {FORMAT}: update tuner"
                )
            step, settings = float(about["step"]), UnionSettings.of(about["settings"])
            weight, bias, codes, labels = (tensors[name] for name in ("given.weight", "given.bias", "codes", "labels"))
        except (KeyError, TypeError, ValueError, RecursionError, TrainingError) as error:
            raise BundleError(f"{path} cannot be read ({error}): export again") from None
        features = weight.shape[-1] if weight.ndim else 0
        fits = (
            weight.shape == (outputs, features)
            and 0 < features <= MOST_FEATURES
            and bias.shape == (outputs,)
            and codes.shape == (len(labels), features)
            and codes.dtype == np.int16
            and labels.dtype.kind in "ui"
            and bundle.targets.fits(labels.astype(np.float32) if labels.dtype == np.uint8 else labels, outputs)
            and np.abs(codes.astype(np.int32)).max(initial=0) <= LARGEST_CODE
            and 2.0**-100 < step < 2.0**100
            and np.log2(step) % 1 == 0
        )
        if not fits:
            raise BundleError(f"{path} must have a head of {outputs} labels, and codes with labels of it: export again")
        return cls(
            LinearHead(weight.astype(np.float64), bias.astype(np.float64)),
            codes.astype(np.float64),
            labels,
            step,
            settings,
        )
