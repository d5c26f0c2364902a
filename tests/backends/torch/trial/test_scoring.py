"""Scores of a trained tail, and edits of a tail as plugins realise them."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.backends.torch.plans import plan_of
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Lowering, LoweringError, Tail
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.edits.edited import edited
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.scoring import score
from tuner.errors import TrainingError
from tuner.metrics import accuracy, calibrated_loss, top_k_accuracy
from tuner.models.digits import build
from tuner.plan.parts import TailEdit
from tuner.store.store import Store
from tuner.task import LossSettings, Task

pytestmark = pytest.mark.slow


class Broken(nn.Module):
    """Gives logits that are not finite, in evaluation mode, where an input is negative."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value if self.training else value.masked_fill(value < 0, float("nan"))


def test_logits_that_are_not_finite_are_no_score(task: Task) -> None:
    values = torch.ones(40, 10)
    inputs = TailInputs(lambda rows: values[torch.from_numpy(np.asarray(rows))], np.zeros(40, np.int64))
    assert score(task, Broken(), inputs) == 1.0
    values[33, 2] = values[33, 3] = values[4, 1] = -1
    with pytest.raises(
        TrainingError, match=r"the tail must give finite logits .* for 2 of 40 samples .*no score: check"
    ):
        score(task, Broken(), inputs)


def test_weights_that_are_not_numbers_are_not_scored(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    plan = plan_of(task, loaded)
    plan = replace(plan, recipe=replace(plan.recipe, optimiser="sgd", learning_rate=1e45, epochs=1, batch_size=256))
    session = opened(TorchBackend(), task)
    with pytest.raises(TrainingError, match=r"lower recipe\.learning_rate"):
        session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "w"))


def test_the_top_k_accuracy_is_scored_where_there_are_more_labels_than_k(task: Task) -> None:
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


def test_an_edit_that_no_plugin_realises_is_refused(task: Task, loaded: OpenModel) -> None:
    plan = replace(plan_of(task, loaded), shape=(TailEdit("dropout"),))
    with pytest.raises(TrainingError, match="no installed plugin realises tail edit 'dropout'"):
        edited(loaded, plan, Extensions())


def replacing(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Put another layer in the place of a given one."""
    name, layer = next(iter(tail.blocks[-1].layers.items()))
    tail.module.set_submodule(name, nn.Linear(layer.in_features, layer.out_features))
    return tail.module


def copying(tail: Tail, settings: Mapping[str, Any]) -> Any:
    return copy.deepcopy(tail.module)


def freezing(tail: Tail, settings: Mapping[str, Any]) -> Any:
    for value in tail.module.parameters():
        value.requires_grad = False
    return tail.module


def wrapping(tail: Tail, settings: Mapping[str, Any]) -> Any:
    return nn.Sequential(nn.Dropout(0.1), tail.module)


@pytest.mark.parametrize(
    ("lowering", "message"),
    [
        (replacing, "what trains must be weights of the given layers, but '6.weight' is not"),
        (copying, "what trains must be weights of the given layers, but '.*' is not"),
        (freezing, "some weight must train, but all are frozen"),
    ],
)
def test_the_edit_at_fault_is_named_whatever_comes_after_it(
    lowering: Lowering, message: str, task: Task, loaded: OpenModel
) -> None:
    plan = replace(plan_of(task, loaded), shape=(TailEdit("bad"), TailEdit("fine")))
    with pytest.raises(LoweringError, match=f"lowering 'bad': {message}"):
        edited(loaded, plan, Extensions({"bad": lowering, "fine": wrapping}))


def test_what_a_factory_froze_trains_unless_an_edit_says_otherwise(task: Task) -> None:
    frozen = replace(task, model=replace(task.model, factory=f"{__file__}:frozen_backbone", pretrain=None))
    assert all(value.requires_grad for value in load(frozen).model.parameters())


def frozen_backbone() -> nn.Module:
    model = build()
    for value in list(model.parameters())[:-2]:
        value.requires_grad = False
    return model
