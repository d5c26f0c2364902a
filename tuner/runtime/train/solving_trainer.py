"""Solve for a bundle's head again on the device: a round is one solution, and a sample can be forgotten."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.arrays import Array, Doubles, Floats, Labels, RowNumbers
from tuner.bundle.info import TrainInfo
from tuner.errors import BundleError
from tuner.ridge.sums import coded
from tuner.ridge.union import Domain, union_head
from tuner.runtime.infer.inputs import Sample
from tuner.runtime.train.files import SOLVED, SOLVED_FORMAT
from tuner.runtime.train.solved import SolvedFile
from tuner.runtime.train.trainer import Trainer
from tuner.training.epoch import Watch

#: Largest difference of codes of one sample, computed in batches of other sizes or with other threads.
SAME = 2
#: Most samples of the user's own; the oldest leave the sums.
MOST_OWN = 10_000
_PROBED = 16  # features that are compared first


class SolvingTrainer(Trainer):
    """A bundle whose head is solved for: `train` is one solution of all samples, in a fraction of a second.

    The user's samples that the bundle was made from are there already, as codes of their features; `add` adds others,
    and `forget` removes any, as if they had never been there. Nothing is written until `save`.

    Args:
        bundle: The bundle or its folder, exported with ``--trainable`` of a plan that solves.
        threads: Threads within an operator; all that the process may use where it is not given.

    Raises:
        BundleError: The bundle cannot be used, or has no head that is solved for.
    """

    _formats = (SOLVED_FORMAT,)

    def _open(self, info: TrainInfo) -> None:
        self._file = SolvedFile.load(self.bundle)
        self._names = info.weights
        features, outputs = self._file.given.weight.shape[::-1]
        shape = self._replay.codec.shape
        if shape != (features,) or len(self._names) != 2:  # noqa: PLR2004 - weight, bias
            raise BundleError(f"{self.bundle.folder} must have a head of {shape} features: export again")
        empty = Domain.empty(features, outputs, self._file.step, multi=self.bundle.targets.several)
        self._own = empty.added(self._file.codes, self._file.labels)
        codes = coded(self._replay.read(np.arange(len(self._replay))), self._file.step)
        self._others = empty.added(codes, self._replay.labels)
        self._new = empty.codes

    def __len__(self) -> int:
        """Return the number of samples that were given to `add`."""
        return len(self._new)

    @property
    def samples(self) -> int:
        """Number of the user's samples that the head is solved from."""
        return len(self._own)

    def forget(self, samples: Sequence[Sample]) -> int:
        """Remove samples from the sums, which then are, bit for bit, as if these had never been there.

        Call `train` for the head without them, and `save` to write it. The bundle that is here stays: delete it.

        Args:
            samples: As `add` takes them, without labels.

        Returns:
            How many of them the bundle had.

        Raises:
            TunerError: A file cannot be read, or a shape is another one.
        """
        return self._without(coded(self.features(samples), self._file.step))

    def drop(self, rows: Sequence[int]) -> None:
        """Take samples that were added out again; a shallow copy of the trainer keeps them.

        Args:
            rows: Their places, in the order they were added in.
        """
        places = np.asarray(rows, np.int64)
        self._without(self._new[places])
        self._new = np.delete(self._new, places, 0)

    def train(
        self,
        epochs: int | None = None,  # noqa: ARG002 - there are none
        batch_size: int | None = None,  # noqa: ARG002 - nor batches
        watch: Watch = lambda _step, _steps: False,
    ) -> tuple[float, ...]:
        """Solve for the head; the weights are then what `save` writes.

        Returns:
            Its mean loss on the user's samples.

        Raises:
            TunerError: There are no samples of the user's own.
        """
        if not self.samples:
            raise BundleError("there is nothing to solve from: add samples and their labels first")
        head = union_head(self._file.given, self._own, self._others, self._file.settings).head
        values = (head.weight.astype(np.float32), head.bias.astype(np.float32))
        self._weights = dict(zip(self._names, values, strict=True))
        logits = self.logits(self._own.features.astype(np.float32)).astype(np.float64)
        self._losses = (self.bundle.targets.loss(logits, self._own.labels),)
        watch(1, 1)
        return self._losses

    def logits(self, features: Floats) -> Floats:
        """Return the logits of the current weights, float32 [n, labels], for what `features` returns."""
        weight, bias = (self._weights[name] for name in self._names)
        result: Floats = features @ weight.T + bias
        return result

    def _keep(self, features: Floats, rows: Labels) -> None:
        """Add samples to the sums; those that are there already once, with the newer label."""
        codes = coded(features, self._file.step)
        self._new = np.concatenate([self._new, codes])
        for code, label in zip(codes, rows, strict=True):
            same = self._rows_of(code)
            if np.atleast_2d((self._own.labels[same] == label).T).all(axis=0).any():
                continue
            self._own = self._own.without(same).added(code[None], np.asarray(label)[None])
        excess = max(0, self.samples - MOST_OWN)
        self._own = self._own.without(np.arange(excess)) if excess else self._own

    def _replaced(self) -> Mapping[str, Callable[[], bytes]]:
        kept = SolvedFile(self._file.given, self._own.codes, self._own.labels, self._file.step, self._file.settings)
        return {SOLVED: kept.content}

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
