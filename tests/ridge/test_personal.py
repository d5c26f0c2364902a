"""The head of a user: right where the samples allow it, and as sure as it is right."""

import numpy as np
import numpy.typing as npt
import pytest

from tuner.ridge.personal import personal_head
from tuner.ridge.sums import one_hot

CLASSES, FEATURES = 12, 20


def user(count: int, seed: int, *, popular: bool) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return features around a mean of each class, and labels; of a user, a third of the classes is nearly all."""
    means = np.random.default_rng(0).normal(0, 0.6, (CLASSES, FEATURES))
    generator = np.random.default_rng(seed)
    share = np.where(np.arange(CLASSES) < 4, 10.0, 0.2) if popular else np.ones(CLASSES)
    labels = generator.choice(CLASSES, count, p=share / share.sum())
    return means[labels] + generator.normal(0, 1, (count, FEATURES)), labels


def scored(own: int, known: int) -> tuple[float, float]:
    """Return the accuracy on further samples of a user, and how far confidence is from it."""
    parts = [user(known, 1, popular=False), user(own, 2, popular=True)]
    features, labels = (np.concatenate(values) for values in zip(*parts, strict=True))
    rows = np.arange(known, known + own)
    head = personal_head(features, one_hot(labels, CLASSES), labels, rows, 10.0)
    fresh, truth = user(2000, 3, popular=True)
    logits = head.scores(fresh)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
    accuracy = float((logits.argmax(axis=1) == truth).mean())
    return accuracy, float(confidence.mean()) - accuracy


def test_the_users_class_prior_helps_and_the_head_is_as_sure_as_it_is_right() -> None:
    accuracy, gap = scored(300, 600)
    assert accuracy > scored(1, 600)[0] + 0.05  # of one sample there is no prior to speak of
    assert abs(gap) < 0.04


@pytest.mark.parametrize("own", [1, 5])
def test_few_samples_give_finite_weights(own: int) -> None:
    features, labels = user(own, 0, popular=True)
    head = personal_head(features, one_hot(labels, CLASSES), labels, np.arange(own), 100.0)
    assert np.isfinite(head.weight).all()
    assert np.isfinite(head.bias).all()


def test_of_several_labels_the_sigmoid_is_as_sure_as_it_is_right() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(600, FEATURES))
    truth = (features[:, :3] + generator.normal(0, 0.5, (600, 3)) > 0.8).astype(np.float32)
    head = personal_head(features[:400], truth[:400], truth[:400], np.arange(400), 1.0, multi=True)
    probabilities = 1 / (1 + np.exp(-head.scores(features[400:])))
    assert ((probabilities > 0.5) == (truth[400:] > 0)).mean() > 0.85
    assert abs(probabilities.mean() - truth[400:].mean()) < 0.05
