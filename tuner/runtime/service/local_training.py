"""Training of rounds on this device: `Trainer` or `ExitsTrainer` on the bundle in use, into a new bundle next to it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.bundle.rounds import device_folder
from tuner.errors import BundleError
from tuner.runtime.service.round import LABEL_SEPARATOR, RoundTraining
from tuner.runtime.train.exits_trainer import ExitsTrainer
from tuner.runtime.train.trainer import Trainer

MADE = "made"  # in the bundle's own folder for rounds, so that trained weights are nowhere else


@dataclass(frozen=True, slots=True)
class LocalTrainer:
    """Trains a bundle by its plan's recipe, on new samples and on the global ones that it brings along.

    Attributes:
        bundle: Bundle in use.
        home: Folder that the new bundle is made in.
        threads: Threads within an operator; all that the process may use where it is None.
    """

    bundle: Bundle
    home: Path
    threads: int | None = None

    def train(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> Path:
        """Train and return a new bundle's folder; see `tuner.runtime.service.round.DeviceTrainer`.

        Raises:
            TunerError: There are no labels, which only exits can do without, or training fails.
        """
        trainer = trainer_of(self.bundle, self.threads)
        if labels is None:
            if not isinstance(trainer, ExitsTrainer):
                raise BundleError("a round learns from labels, but most samples have none: give class folders")
            trainer.add(samples)
        elif self.bundle.loss == "multi-label":
            trainer.add(samples, [label.split(LABEL_SEPARATOR) for label in labels])
        else:
            trainer.add(samples, labels)
        trainer.train()
        out = self.home / MADE
        shutil.rmtree(out, ignore_errors=True)  # left by a round that was killed
        return trainer.save(out)


def local_training(folder: Path, threads: int | None = None) -> RoundTraining | None:
    """Return how rounds of a bundle train; None where it was exported without ``--trainable``.

    Args:
        folder: Folder of the bundle as it was exported.
        threads: Threads within an operator; all that the process may use where they are not given.

    Raises:
        BundleError: It is not a bundle.
    """
    if Bundle.read(folder).info.train is None:
        return None
    home = device_folder(folder)
    return RoundTraining(
        trainer=lambda bundle: LocalTrainer(bundle, home, threads),
        global_accuracy=lambda bundle: trainer_of(bundle, threads).before,
        learns=has_label,
    )


def trainer_of(bundle: Bundle, threads: int | None = None) -> Trainer | ExitsTrainer:
    """Return the trainer of a bundle: of its exits where it has some, else of its tail.

    Raises:
        BundleError: It was exported without ``--trainable``.
    """
    return ExitsTrainer(bundle, threads) if bundle.exits else Trainer(bundle, threads)


def has_label(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle's head has the rows of a sample's label, or labels."""
    own = label.split(LABEL_SEPARATOR) if bundle.loss == "multi-label" else [label]
    return set(own) <= set(bundle.labels)
