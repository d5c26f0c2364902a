"""What a round trains on counts as the bundle's plan says."""

import numpy as np

from tuner.bundle.replay import Replay
from tuner.plan.parts import DataPlan
from tuner.runtime.train.tail import mixed_rows
from tuner.store.codec import Codec


def replay(labels: list[int]) -> Replay:
    codec = Codec(32, (2,))
    return Replay(codec, codec.encode(np.ones((len(labels), 2), np.float32)), np.array(labels))


def test_global_samples_weigh_and_classes_are_balanced_as_in_the_trial() -> None:
    rows = mixed_rows(DataPlan(0.1, weight=4.0, balance=True), replay([0] * 9), replay([1]))
    assert rows.weights is not None
    assert rows.weights.tolist() == [1.0] * 9 + [4.0]
    assert rows.order is not None
    assert np.bincount(rows.labels[rows.order(np.random.default_rng(0))]).tolist() == [5, 5]
