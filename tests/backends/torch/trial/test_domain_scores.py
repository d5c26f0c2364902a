"""Which scores a domain's samples have."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.metrics import accuracy, calibrated_loss, top_k_accuracy
from tuner.task import LossSettings
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow


def test_the_top_k_accuracy_is_scored_where_there_are_more_labels_than_k() -> None:
    task = digits()
    labels = task.local.val.labels
    outputs = np.random.default_rng(0).normal(size=(len(labels), 10)).astype(np.float32)
    found = task.targets.scores("local", outputs, labels, labelled=True)
    assert found == {
        "local_accuracy": accuracy(outputs, labels),
        "local_top5_accuracy": top_k_accuracy(outputs, labels, 5),
        "local_loss": calibrated_loss(outputs, labels),
    }
    few = replace(task, loss_settings=LossSettings(top_k=3))
    assert few.targets.scores("test", outputs, labels, labelled=True).keys() == {"test_accuracy", "test_top3_accuracy"}
    all_of_them = replace(task, loss_settings=LossSettings(top_k=10))
    found = all_of_them.targets.scores("local", outputs, labels, labelled=True)
    assert found.keys() == {"local_accuracy", "local_loss"}
