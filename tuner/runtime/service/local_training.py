"""Training of rounds on this device: `Trainer` or `ExitsTrainer` on the bundle in use, into a new bundle next to it."""

import shutil
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.bundle.info import FOLDS
from tuner.bundle.rounds import device_folder
from tuner.errors import BundleError
from tuner.runtime.service.round import RoundTraining
from tuner.runtime.train.answer import Answer
from tuner.runtime.train.exits_trainer import ExitsTrainer
from tuner.runtime.train.files import SOLVED_FORMAT
from tuner.runtime.train.solving_trainer import SolvingTrainer
from tuner.runtime.train.trainer import Trainer
from tuner.targets.base import SEPARATOR

MADE = "made"  # in the bundle's own folder for rounds, so that trained weights are nowhere else


class LocalTrainer:
    """Trains a bundle by its plan's recipe, on new samples and on the global ones that it brings along.

    New samples go through the frozen blocks once, however many models are trained on them.

    Args:
        bundle: Bundle in use.
        home: Folder that the new bundle is made in.
        threads: Threads within an operator; all that the process may use where it is None.

    Raises:
        BundleError: The bundle was exported without ``--trainable``.
    """

    def __init__(self, bundle: Bundle, home: Path, threads: int | None = None) -> None:
        self._home, self._trainer = home, trainer_of(bundle, threads)
        self._samples: Sequence[npt.NDArray[np.generic]] = ()

    def add(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> None:
        """Take the samples of a round; see `tuner.runtime.service.round.DeviceTrainer`.

        Raises:
            TunerError: There are no labels, which only exits can do without, or a sample does not fit the bundle.
        """
        trainer, self._samples = self._trainer, samples
        if labels is None:
            if not isinstance(trainer, ExitsTrainer):
                raise BundleError("a round learns from labels, but most samples have none: give class folders")
            trainer.add(samples)
        else:
            trainer.add(samples, list(map(trainer.bundle.targets.parts, labels)))

    def answers_without(self, rows: Sequence[int]) -> list[Answer]:
        """Train on all samples but some, and return the answers to these.

        Raises:
            TunerError: Training fails.
        """
        fold = copy(self._trainer)
        fold.drop(rows)
        fold.train()
        return fold.answers([self._samples[row] for row in rows])

    def train(self) -> Path:
        """Train on all samples, and return a new bundle's folder.

        Raises:
            TunerError: Training fails.
        """
        self._trainer.train()
        out = self._home / MADE
        shutil.rmtree(out, ignore_errors=True)  # left by a round that was killed
        return self._trainer.save(out)


def local_training(folder: Path, threads: int | None = None) -> RoundTraining | None:
    """Return how rounds of a bundle train; None where it was exported without ``--trainable``.

    Args:
        folder: Folder of the bundle as it was exported.
        threads: Threads within an operator; all that the process may use where they are not given.

    Raises:
        BundleError: It is not a bundle.
    """
    info = Bundle.read(folder).info.train
    if info is None:
        return None
    home = device_folder(folder)
    return RoundTraining(
        trainer=lambda bundle: LocalTrainer(bundle, home, threads),
        global_right=lambda bundle: trainer_of(bundle, threads).right_before,
        learns=has_label,
        exported=folder,
        folds=info.folds or FOLDS,
    )


def trainer_of(bundle: Bundle, threads: int | None = None) -> Trainer | ExitsTrainer:
    """Return the trainer of a bundle: of its exits where it has some, of a head that is solved for, else of its tail.

    Raises:
        BundleError: It was exported without ``--trainable``.
    """
    if bundle.exits:
        return ExitsTrainer(bundle, threads)
    is_solved = bundle.info.train is not None and bundle.info.train.format == SOLVED_FORMAT
    return SolvingTrainer(bundle, threads) if is_solved else Trainer(bundle, threads)


def has_label(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle can be trained on a sample's label, labels or targets."""
    return bundle.targets.has(label, bundle.labels)


def known_label(label: str | None, bundle: Bundle) -> str | None:
    """Return a sample's label, or several in one text, by the names that a bundle knows."""
    if label is None:
        return None
    given = bundle.targets.parts(label)
    return SEPARATOR.join(dict.fromkeys(one for name in given for one in bundle.info.labels_of(name)))
