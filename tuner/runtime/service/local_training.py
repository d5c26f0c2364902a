"""How the rounds of a bundle train on this device."""

from pathlib import Path

from tuner.bundle.format import Bundle
from tuner.bundle.info import FOLDS, TrainKind
from tuner.runtime.service.round import RoundTraining
from tuner.runtime.train.base import DeviceTrainer
from tuner.runtime.train.exits import ExitsTrainer
from tuner.runtime.train.solved import SolvingTrainer
from tuner.runtime.train.tail import Trainer
from tuner.targets.base import SEPARATOR


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
    return RoundTraining(
        trainer=lambda bundle: trainer_of(bundle, threads),
        global_right=lambda bundle: trainer_of(bundle, threads).right_before,
        learns=has_label,
        exported=folder,
        folds=info.folds or FOLDS,
    )


def trainer_of(bundle: Bundle, threads: int | None = None) -> DeviceTrainer:
    """Return the trainer of a bundle: of its exits where it has some, of a head that is solved for, else of its tail.

    Raises:
        BundleError: It was exported without ``--trainable``.
    """
    if bundle.exits:
        return ExitsTrainer(bundle, threads)
    is_solved = bundle.info.train is not None and bundle.info.train.kind == TrainKind.CLOSED_FORM
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
