"""Linear heads on features that stay as they are."""

import numpy as np
import pytest

from tuner.backends.torch.logistic import fit_linear
from tuner.backends.torch.task_loss import torch_loss
from tuner.targets import MultiLabel, Regression, SingleLabel, Targets


@pytest.mark.parametrize("width", [6, 90])
@pytest.mark.parametrize("targets", [SingleLabel(), MultiLabel(), Regression()])
def test_a_linear_rule_is_learned_from_features_of_any_scale(targets: Targets, width: int) -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(160, 3)).astype(np.float32)
    mixing = generator.normal(size=(3, width)) * 10.0 ** generator.integers(-2, 3, width)
    features = (scores @ mixing + 5).astype(np.float32)
    labels = scores.argmax(axis=1) if targets.one_class else scores
    if targets.several:
        labels = (scores > 0).astype(np.float32)
    head = fit_linear(features[:80], labels[:80], 3, torch_loss(targets), np.arange(80) % 5 + 1)
    assert targets.score(head.scores(features[80:]).astype(np.float32), labels[80:]) > 0.9
