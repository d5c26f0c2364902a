"""Scores of several labels, as scikit-learn computes them."""

import numpy as np
import pytest

from tuner.metrics import f1_thresholds, macro_auc, mean_average_precision

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
