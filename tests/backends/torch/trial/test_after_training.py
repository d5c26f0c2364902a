"""What a module of an edit does when training ends: with the samples, and with the model's own weights."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Evolving, LoweringError, Tail, TrainingSamples
from tuner.backends.torch.trial.edits.completed import training_samples
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.errors import TrainingError
from tuner.plan.parts import DataPlan, EditTraits, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.targets import SingleLabel
from tuner.task.info import task_info
from tuner_testing.models.lowered import LoweredTail, made_up_model
from tuner_testing.models.made_up import TRAIN, made_up_task

Finish = Callable[[Tail, TrainingSamples], None]


def evolving(finish: Finish, *, copies: bool = False) -> LoweredTail:
    """Return a tail in a module that is called when training ends."""

    class Ending(Evolving, nn.Sequential):
        handle: Any

        def finish(self, samples: TrainingSamples) -> tuple[str, ...]:
            finish(self.handle, samples)
            return ("ended",)

    def lowering(tail: Tail, _settings: Mapping[str, Any]) -> nn.Module:
        made = Ending(tail.given() if copies else tail.module)
        made.handle = tail
        return made

    edit = TailEdit("ending", traits=EditTraits(traceable=False))
    plan = TrialPlan(made_up_model(), task_info(made_up_task()), split=2, shape=(edit,))
    return LoweredTail(plan, Extensions(lowerings={"ending": lowering}))


def test_a_module_around_the_tail_keeps_the_models_own_weights() -> None:
    def halve(tail: Tail, _samples: TrainingSamples) -> None:
        tail.head.weight.mul_(0.5)

    lowered = evolving(halve)
    lowered.train()
    trained = lowered.logits()
    finished = lowered.finish()
    assert finished.state_dict().keys() == lowered.given.state_dict().keys()
    assert torch.allclose(lowered.logits(finished), trained)


def test_an_edit_that_trains_a_copy_of_the_tail_says_that_it_keeps_no_weights() -> None:
    with pytest.raises(LoweringError, match="what trains must be weights of the given layers, but"):
        evolving(lambda _tail, _samples: None, copies=True)


def test_samples_after_training_are_those_that_enter_a_layer_and_are_computed_when_asked_for() -> None:
    seen: list[Any] = []

    def keep(tail: Tail, samples: TrainingSamples) -> None:
        before = tail.head.weight.clone()
        seen.extend([samples.entering(tail.head), samples.labels, torch.is_grad_enabled()])
        tail.head.weight.copy_(before)

    lowered = evolving(keep)
    lowered.train()
    inputs, labels, has_gradients = seen
    assert inputs.features.shape == (TRAIN, lowered.plan.model.blocks[-1].in_shape[0])
    assert inputs.labels is labels
    assert not has_gradients
    head = list(lowered.edits.given.modules())[-1] if lowered.edits.given is not None else None
    assert isinstance(head, nn.Linear)
    outputs = torch.from_numpy(inputs.features) @ head.weight.T + head.bias
    assert torch.allclose(outputs, lowered.logits(), atol=1e-5)


def test_nothing_is_read_where_no_module_asks_and_a_layer_is_applied_once_to_each_sample() -> None:
    reads: list[int] = []

    def read(rows: Any) -> torch.Tensor:
        reads.append(len(rows))
        return torch.ones(len(rows), 4)

    plan = replace(evolving(lambda _tail, _samples: None).plan, data=DataPlan(weight=2.0))
    layer, labels = nn.Linear(4, 3), np.zeros(5, np.int64)
    tail = nn.Sequential(layer, nn.ReLU())
    samples = training_samples(SingleLabel(), tail, plan, TailInputs(read, labels, local_rows=3))
    assert reads == []
    assert samples.is_local.tolist() == [True, True, True, False, False]
    inputs = samples.entering(layer)
    assert (inputs.features.shape, inputs.known_weight, reads) == ((5, 4), 2.0, [5])
    with pytest.raises(TrainingError, match="once to each of 5 samples, but this one was applied to 0"):
        samples.entering(nn.Linear(4, 3))


def test_what_finish_raises_names_the_edit_and_the_line() -> None:
    @torch.no_grad()
    def fail(_tail: Tail, _samples: TrainingSamples) -> None:
        raise ZeroDivisionError("nothing to divide")

    with pytest.raises(LoweringError, match=r"'ending': finish raised ZeroDivisionError: .* \(test_after_training.py"):
        evolving(fail).train()
