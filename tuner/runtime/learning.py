"""How rounds train: with `Trainer`, on the bundle in use, a new bundle beside it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.runtime.bundle import Bundle
from tuner.runtime.exits_trainer import ExitsTrainer
from tuner.runtime.home import prepared
from tuner.runtime.rounds import LABEL_SEPARATOR, Training
from tuner.runtime.trainer import Trainer

MADE = "made"  # in the bundle's own folder for rounds, so that trained weights lie nowhere else


@dataclass(frozen=True, slots=True)
class Learner:
    """Trains a bundle as its plan says, on samples that it is given and on the global ones that it brings along.

    Attributes:
        bundle: In use.
        home: Where the new bundle is made.
        threads: Within an operator; all the process may use where it is None.
    """

    bundle: Bundle
    home: Path
    threads: int | None = None

    def train(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> Path:
        """Train and return a new bundle's folder; see `tuner.runtime.rounds.Trains`.

        Raises:
            TunerError: There are no labels, which only exits can do without, or training fails.
        """
        several = self.bundle.loss == "multi-label" and labels is not None
        given = [one.split(LABEL_SEPARATOR) for one in labels or ()] if several else labels
        trainer = trainer_of(self.bundle, self.threads)
        if isinstance(trainer, ExitsTrainer):
            trainer.add(samples, given)
        elif given is None:
            raise BundleError("a round learns from labels, and most samples have none: give class folders")
        else:
            trainer.add(samples, given)
        trainer.train()
        out = self.home / MADE
        shutil.rmtree(out, ignore_errors=True)  # of a round that was killed
        return trainer.save(out)


def training_of(folder: Path, threads: int | None = None) -> Training | None:
    """Return how rounds of a bundle train; None where it was exported without ``--trainable``.

    Args:
        folder: The bundle's, as it was exported.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: It is no bundle.
    """
    if "train" not in Bundle.read(folder).info:
        return None
    home = prepared(folder)
    return Training(
        trainer=lambda bundle: Learner(bundle, home, threads),
        global_accuracy=lambda bundle: trainer_of(bundle, threads).before,
        learns=known_label,
    )


def trainer_of(bundle: Bundle, threads: int | None = None) -> Trainer | ExitsTrainer:
    """Return what trains a bundle: its exits where it has some, else its tail.

    Raises:
        BundleError: It was exported without ``--trainable``.
    """
    return ExitsTrainer(bundle, threads) if bundle.exits else Trainer(bundle, threads)


def known_label(bundle: Bundle, label: str) -> bool:
    """Say whether a bundle's head has the rows of a sample's label, or labels."""
    own = label.split(LABEL_SEPARATOR) if bundle.loss == "multi-label" else [label]
    return set(own) <= set(bundle.labels)
