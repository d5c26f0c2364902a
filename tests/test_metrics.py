"""Scores, as scikit-learn computes them."""

import numpy as np
import pytest

from tuner.metrics import (
    f1_thresholds,
    macro_auc,
    mean_absolute_error,
    mean_average_precision,
    r_squared,
    top_k_accuracy,
    wilson,
)
from tuner.targets import Regression

sklearn_metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the reference")


@pytest.mark.parametrize("seed", range(4))
def test_areas_and_precisions_are_scikit_learns(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = (generator.random((60, 7)) < 0.3).astype(np.float32)
    outputs = (labels + generator.normal(0, 1.5, labels.shape)).astype(np.float32)
    outputs = outputs.round(seed % 2)  # with ties
    assert macro_auc(outputs, labels) == pytest.approx(sklearn_metrics.roc_auc_score(labels, outputs, average="macro"))
    expected = sklearn_metrics.average_precision_score(labels, outputs, average="macro")
    assert mean_average_precision(outputs, labels) == pytest.approx(expected)


def test_labels_without_a_positive_do_not_count() -> None:
    labels, outputs = np.array([[1, 0], [0, 0]], np.float32), np.array([[2, 1], [1, 2]], np.float32)
    assert macro_auc(outputs, labels) == 1
    assert mean_average_precision(outputs, labels) == 1
    assert mean_average_precision(outputs, np.zeros_like(labels)) == 0


def test_thresholds_have_the_largest_f1() -> None:
    generator = np.random.default_rng(0)
    labels = (generator.random((80, 5)) < 0.4).astype(np.float32)
    probabilities = np.clip(0.3 * labels + 0.7 * generator.random(labels.shape), 0, 1)
    for column, threshold in enumerate(f1_thresholds(probabilities, labels)):

        def f1(at: float, column: int = column) -> float:
            return float(sklearn_metrics.f1_score(labels[:, column], probabilities[:, column] >= at))

        assert f1(threshold) == pytest.approx(max(f1(at) for at in probabilities[:, column]))
    assert f1_thresholds(probabilities, np.zeros_like(labels)) == [0.5] * 5


@pytest.mark.parametrize("seed", range(4))
def test_scores_of_a_regression_are_scikit_learns_in_any_unit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    targets = generator.normal(size=(50, 1 + seed % 3)).astype(np.float32)
    outputs = (targets + generator.normal(0, 0.5 + seed, targets.shape)).astype(np.float32)
    expected = sklearn_metrics.r2_score(targets, outputs)
    assert r_squared(outputs, targets) == pytest.approx(expected, abs=1e-6)
    assert Regression().score(outputs, targets) == pytest.approx(max(0, expected), abs=1e-6)
    std, mean = (2.0, 9.0, 0.5)[: targets.shape[1]], 40.0
    assert r_squared(outputs * std + mean, targets * std + mean) == pytest.approx(expected, abs=1e-5)
    in_units = sklearn_metrics.mean_absolute_error(targets * std + mean, outputs * std + mean)
    assert mean_absolute_error(outputs, targets, std) == pytest.approx(in_units, abs=1e-5)


def test_a_constant_target_explains_nothing() -> None:
    targets = np.array([[1, 2], [1, 4]], np.float32)
    assert r_squared(targets, targets) == 1
    assert r_squared(targets[:, :1], targets[:, :1]) == 0


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_accuracies_are_scikit_learns(k: int) -> None:
    generator = np.random.default_rng(k)
    labels = generator.integers(0, 8, 100)
    outputs = generator.normal(size=(100, 8)).round(1)
    expected = sklearn_metrics.top_k_accuracy_score(labels, outputs, k=k, labels=np.arange(8))
    assert top_k_accuracy(outputs, labels, k) == pytest.approx(expected)
    unknown = np.array([[1, 0, -np.inf, -np.inf]] * 2, np.float32)  # classes that the model does not know
    assert top_k_accuracy(unknown, np.array([1, 3]), 3) == 0.5


def test_an_interval_holds_its_share_within_0_and_1_whatever_the_count() -> None:
    for count in range(1, 501):
        for right in range(count + 1):
            low, high = wilson(right / count, count)
            assert 0 <= low <= right / count <= high <= 1, (right, count)
