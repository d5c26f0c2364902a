"""Edits of a tail, as plugins realise them."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from tests.backends.torch.plans import plan_of
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Lowering, LoweringError, Tail
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.edits.edited import edited
from tuner.errors import TrainingError
from tuner.models.digits import build
from tuner.plan.parts import TailEdit
from tuner.task import Task
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow


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


def test_what_a_factory_froze_trains_unless_an_edit_says_otherwise() -> None:
    task = digits()
    frozen = replace(task, model=replace(task.model, factory=f"{__file__}:frozen_backbone", pretrain=None))
    assert all(value.requires_grad for value in load(frozen).model.parameters())


def frozen_backbone() -> nn.Module:
    model = build()
    for value in list(model.parameters())[:-2]:
        value.requires_grad = False
    return model
