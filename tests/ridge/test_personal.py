"""The head of a user: right where the samples allow it, and as sure as it is right."""

import numpy as np
import numpy.typing as npt
import pytest

from tuner.ridge.personal import gated_head, personal_head
from tuner.ridge.solve import solve, spread
from tuner.ridge.sums import Sums, coded, step_of
from tuner.targets import MultiLabel, Regression
from tuner.targets.strata import one_hot, row_weights

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
    head = personal_head(features, one_hot(labels, CLASSES), labels, rows, rows % 5, 10.0).head
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
    head = personal_head(features, one_hot(labels, CLASSES), labels, np.arange(own), np.arange(own) % 5, 100.0).head
    assert np.isfinite(head.weight).all()
    assert np.isfinite(head.bias).all()


def test_of_several_labels_the_sigmoid_is_as_sure_as_it_is_right() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(600, FEATURES))
    truth = (features[:, :3] + generator.normal(0, 0.5, (600, 3)) > 0.8).astype(np.float32)
    rows = np.arange(400)
    head = personal_head(features[:400], truth[:400], truth[:400], rows, rows % 5, 1.0, kind=MultiLabel()).head
    probabilities = 1 / (1 + np.exp(-head.scores(features[400:])))
    assert ((probabilities > 0.5) == (truth[400:] > 0)).mean() > 0.85
    assert abs(probabilities.mean() - truth[400:].mean()) < 0.05


def test_what_a_user_sees_first_is_answered_without_its_fold() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 60)
    features = generator.normal(size=(60, 100)) + 1.6 * one_hot(labels, 100)  # little to learn but by heart
    rows, folds = np.arange(20, 60), np.arange(40) % 5
    head, unseen, _ = personal_head(features, one_hot(labels, 3), labels, rows, folds, 1.0)
    assert (head.scores(features[rows]).argmax(axis=1) == labels[rows]).mean() > 0.95
    assert (unseen.argmax(axis=1) == labels[rows]).mean() < 0.7
    step, targets = step_of(features), one_hot(labels, 3)
    weights = np.concatenate([np.ones(20), row_weights(labels[rows])])
    every = Sums.empty(100, 3, step).added(coded(features, step), targets, weights)
    inside = rows[folds == 2]
    scale = head.weight[0, 0] / solve(every, spread(every)).head.weight[0, 0]
    without = solve(every.removed(coded(features[inside], step), targets[inside], weights[inside]), spread(every)).head
    expected, answers = scale * without.scores(features[inside]), unseen[folds == 2]
    np.testing.assert_allclose(answers - answers[0], expected - expected[0], atol=1e-9)  # the prior is one for a fold


def test_sums_of_further_samples_count_as_these_samples_do() -> None:
    known, labels_known = user(300, 1, popular=False)
    own, labels_own = user(40, 2, popular=True)
    features, labels = np.concatenate([own, known]), np.concatenate([labels_own, labels_known])
    rows, targets, step = np.arange(40), one_hot(labels, CLASSES), step_of(features)
    every = personal_head(features, targets, labels, rows, rows % 5, 10.0)
    given = Sums.empty(FEATURES, CLASSES, step).added(coded(known, step), targets[40:])
    for sums in (given, given.rescaled(2 * step), given.weighted(0.25) + given.weighted(0.75)):
        begun = personal_head(own, targets[:40], labels_own, rows, rows % 5, 10.0, given=sums)
        np.testing.assert_allclose(begun.head.weight, every.head.weight, rtol=1e-2, atol=1e-4)
        np.testing.assert_allclose(begun.unseen, every.unseen, rtol=1e-2, atol=1e-3)


def test_a_gate_is_unsure_of_what_others_wrote_and_answers_of_samples_left_out_say_so() -> None:
    generator = np.random.default_rng(0)
    means = generator.normal(0, 1.5, (CLASSES, FEATURES))

    def samples(classes: range, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        labels = generator.integers(classes.start, classes.stop, count)
        return means[labels] + generator.normal(0, 1, (count, FEATURES)), labels

    def confidences(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        best: npt.NDArray[np.float64] = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
        return best

    (own, ours), (others, theirs) = samples(range(8, 12), 200), samples(range(8), 300)
    features, labels = np.concatenate([others, own]), np.concatenate([theirs, ours])
    head, unseen, known = gated_head(features, labels, np.arange(300, 500), np.arange(200) % 5, CLASSES)
    assert known is not None
    (fresh, truth), (strange, _) = samples(range(8, 12), 500), samples(range(8), 500)
    assert (head.scores(fresh).argmax(axis=1) == truth).mean() > 0.9
    assert np.median(confidences(head.scores(fresh))) > 0.9
    assert np.median(confidences(head.scores(strange))) < 0.3  # it has no scores of what it does not answer
    for left_out, of_fresh in ((unseen, fresh), (known, strange)):
        expected = confidences(head.scores(of_fresh)).mean()
        assert confidences(left_out).mean() == pytest.approx(expected, abs=0.05)


def test_the_head_of_numbers_is_the_solution_as_it_is() -> None:
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    targets, rows = features[:, :2] * np.float32(3), np.arange(60)
    solved = personal_head(features, targets, targets, rows, rows % 5, 1.0, kind=Regression())
    step = step_of(features)
    sums = Sums.empty(8, 2, step).added(coded(features, step), targets, np.ones(60))
    head = solve(sums, spread(sums)).head
    np.testing.assert_array_equal(solved.head.weight, head.weight)
    np.testing.assert_array_equal(solved.head.bias, head.bias)
    assert np.abs(solved.unseen - targets).mean() < 0.5
