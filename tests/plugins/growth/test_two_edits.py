"""Growth and a second edit of the tail, in both orders: they train, export and resume as growth alone does."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tuner.backends.base import CHECKPOINT, Session, Trial
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Tail, Training
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.trial.edits.evolving import begin_evolving
from tuner.plan.parts import EditTraits, RecipePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_growth import GROWS
from tuner_growth.edit import Edit
from tuner_growth.torch.tail import GrowingTail

GROWTH = TailEdit("grow-scratch", Edit(start=0.2, controller="exponential", adapter="dspa").settings, GROWS)
SETTINGS = (("rate", 0.2),)
TRAITS = {"in-sequence": EditTraits(), "scaled": EditTraits(keeps_weights=False)}
#: Epochs have 6 steps, and the tail grows after the third.
EPOCHS, STEP_AFTER_GROWTH = 5, 21


def in_sequence(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Put a dropout in front of the tail, as the example in the documentation of plugins does."""
    return nn.Sequential(nn.Dropout(settings["rate"]), tail.module)


class Scaled(nn.Module):
    """A tail behind a learned factor and a dropout."""

    def __init__(self, tail: nn.Module, rate: float) -> None:
        super().__init__()
        self.factor, self.noise, self.inner = nn.Parameter(torch.ones(())), nn.Dropout(rate), tail

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(self.noise(value * self.factor))
        return outputs


def scaled(tail: Tail, settings: Mapping[str, Any]) -> Any:
    """Put the tail into a module of another name and with a weight of its own."""
    return Scaled(tail.module, settings["rate"])


def session() -> Session:
    """Open the digits with growth's lowerings and the two of this file."""
    lowerings = {**build_host().extensions("torch").lowerings, "in-sequence": in_sequence, "scaled": scaled}
    return TorchBackend().open(digits(), Extensions(lowerings))


def planned(*edits: TailEdit) -> TrialPlan:
    """Return a plan that trains all blocks with some edits."""
    recipe = RecipePlan(epochs=EPOCHS, optimiser="adam", learning_rate=3e-3)
    return TrialPlan(session().model, task_info(digits()), shape=edits, recipe=recipe)


class Interruption(Exception):  # noqa: N818 - what a kill looks like from inside
    pass


def interrupt(progress: Mapping[str, Any]) -> bool:
    """Raise in the middle of the epoch after the growth."""
    if progress.get("step") == STEP_AFTER_GROWTH:
        raise Interruption
    return False


@pytest.mark.slow
@pytest.mark.parametrize("second", ["in-sequence", "scaled"])
@pytest.mark.parametrize("growth_first", [True, False])
def test_two_edits_train_resume_and_export_what_was_scored(second: str, growth_first: bool, tmp_path: Path) -> None:
    other = TailEdit(second, SETTINGS, TRAITS[second])
    plan = planned(GROWTH, other) if growth_first else planned(other, GROWTH)
    weights, resumed_weights = (tmp_path / name / "weights.safetensors" for name in ("undisturbed", "resumed"))
    trial, folder = Trial(plan, 1, Store(tmp_path / "store"), weights), tmp_path / "out"
    outcome = session().train(trial)
    assert sum(value for entry in outcome.epochs for name, value in entry.items() if name.endswith(".added")) > 0
    folder.mkdir()
    exported = session().export(plan, weights, folder, trainable=False)
    assert exported.checks["largest_logit_difference"] < 1e-3
    assert abs(exported.checks["local_accuracy"] - outcome.values["local_accuracy"]) <= 0.01
    widths = {name: value for entry in outcome.epochs for name, value in entry.items() if name.endswith(".width")}
    in_the_model = dict(zip(("0.0", "1.0", "3.0"), widths.values(), strict=True))
    assert exported.sections["evolved"] == {GROWTH.kind: in_the_model}

    with pytest.raises(Interruption):
        session().train(replace(trial, weights=resumed_weights, report=interrupt))
    assert resumed_weights.with_name(CHECKPOINT).is_file()
    resumed = session().train(replace(trial, weights=resumed_weights))
    assert [entry["loss"] for entry in resumed.epochs] == [entry["loss"] for entry in outcome.epochs]
    state, resumed_state = load_file(weights), load_file(resumed_weights)
    assert resumed_state.keys() == state.keys()
    assert all(torch.equal(resumed_state[name], value) for name, value in state.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("front", "body", "start"),
    [
        (nn.Linear(3, 5), [nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2)], 1.0),
        (nn.Conv1d(3, 5, 1), [nn.Conv1d(5, 10, 3), nn.ReLU(), nn.Flatten(), nn.Linear(50, 2)], 0.2),
    ],
)
def test_a_tail_inside_another_module_grows_by_its_own_inputs_and_the_loss_of_all(
    front: nn.Module, body: list[nn.Module], start: float
) -> None:
    torch.manual_seed(0)
    growing = GrowingTail(nn.Sequential(*body), Edit(start=start, controller="linear", adapter="nest"), scratch=True)
    tail = nn.Sequential(front, growing)
    values = torch.randn(6, 3) if isinstance(front, nn.Linear) else torch.randn(6, 3, 7)

    def loss(candidate: nn.Module) -> torch.Tensor:
        mean: torch.Tensor = candidate.eval()(values).square().mean()
        return mean

    optimiser = torch.optim.Adam(tail.parameters())
    begin_evolving(tail, Training(optimiser, values[:1], loss, steps=1, seed=0))
    value = loss(tail)
    value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for epoch in (1, 2, 3):
        growing.before_update(value.item())
        entry = growing.after_epoch(epoch)
    assert growing.widths == {"0": 4}
    assert entry["loss_before_growth"] == value.item()
    assert entry["loss_after_growth"] == loss(tail).item()
    assert tail[1] is growing
