"""Whether an answer is right: it is the sample's label, or one of them; of a regression, near its targets."""

from tuner.bundle.format import Bundle
from tuner.metrics import TOLERANCE
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.infer.targets import is_near, is_target
from tuner.runtime.train.base import Answer

LABEL_SEPARATOR = "|"  # between the labels of a sample that has several
#: What a right answer of a regression is, in words.
NEAR = f"within {TOLERANCE:g} standard deviations of their targets"


def is_right(answer: Prediction | Answer, truth: str, bundle: Bundle) -> bool:
    """Return whether an answer is right.

    Args:
        answer: A model's.
        truth: The sample's label, or labels, or targets, as text.
        bundle: The model's.

    Raises:
        BundleError: The target of a regression is no number.
    """
    if bundle.loss == "regression":
        return is_near(answer.label, truth, bundle)
    return answer.label in labels_of(truth, bundle)


def labels_of(text: str, bundle: Bundle) -> set[str]:
    """Return a sample's label, or labels."""
    return set(text.split(LABEL_SEPARATOR)) if bundle.loss == "multi-label" else {text}


def has_label(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle can be trained on a sample's label, or labels; of a regression, on its targets."""
    if bundle.loss == "regression":
        return is_target(label, bundle)
    return labels_of(label, bundle) <= set(bundle.labels)


def knows(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle has a sample's label, or one of its labels; of a regression it has all outputs."""
    return bundle.loss == "regression" or bool(labels_of(label, bundle) & set(bundle.labels))


def known_label(label: str | None, bundle: Bundle) -> str | None:
    """Return a sample's label, or several, joined with `LABEL_SEPARATOR`, by the names that a bundle knows."""
    if label is None:
        return None
    given = label.split(LABEL_SEPARATOR) if bundle.loss == "multi-label" else [label]
    return LABEL_SEPARATOR.join(dict.fromkeys(one for name in given for one in bundle.info.labels_of(name)))
