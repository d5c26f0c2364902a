"""Whether an answer is right, and which labels a bundle has; labels, several labels and targets are text here."""

from tuner.bundle.format import Bundle
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.train.answer import Answer
from tuner.targets.base import SEPARATOR


def is_right(answer: Prediction | Answer, truth: str, bundle: Bundle) -> bool:
    """Return whether an answer is right.

    Args:
        answer: A model's.
        truth: The sample's label, or labels, or targets.
        bundle: The model's.

    Raises:
        BundleError: A target is no number.
    """
    return bundle.targets.is_right(answer.label, truth, bundle.labels)


def has_label(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle can be trained on a sample's label, labels or targets."""
    return bundle.targets.has(label, bundle.labels)


def knows(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle has a sample's label, or one of its labels; of targets it has all outputs."""
    return bundle.targets.knows(label, bundle.labels)


def known_label(label: str | None, bundle: Bundle) -> str | None:
    """Return a sample's label, or several in one text, by the names that a bundle knows."""
    if label is None:
        return None
    given = bundle.targets.parts(label)
    return SEPARATOR.join(dict.fromkeys(one for name in given for one in bundle.info.labels_of(name)))
