"""The growth strategy: its plans, and trials that grow, end at caps, resume and export."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.sessions import opened
from tuner.backends.base import CHECKPOINT, Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.trial.checkpoint import Checkpoint
from tuner.errors import TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import RecipePlan, RuntimePlan, Scalar, Schedule, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.sources import preferred_values
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_growth import ADAPTERS, GROWS, Growth, Knobs
from tuner_growth.edit import Edit
from tuner_growth.torch.tail import GrowingTail
from tuner_testing import StrategyContract

RULE = Edit(start=0.1, cap=1.0, controller="ric", horizon=3, penalty=0.1, adapter="dspa")


class TestGrowth(StrategyContract):
    strategy = Growth()


def composed(values: dict[str, Scalar]) -> TrialPlan:
    return compose([Growth()], preferred_values(values), example_model(4), example_task()).plan


def test_a_trial_may_go_without_growth() -> None:
    assert composed({"growth.mode": "none"}).shape == ()


@pytest.mark.parametrize("mode", ["scratch", "tail"])
def test_the_rules_are_in_the_plan_and_its_sentence_names_the_mode(mode: str) -> None:
    plan = composed({"growth.mode": mode, "growth.start": 0.1, "growth.adapter": "cgap"})
    assert [edit.kind for edit in plan.shape] == [f"grow-{mode}"]
    settings = dict(plan.shape[0].settings)
    assert settings["adapter"] == "cgap"
    assert settings["start"] == pytest.approx(0.1)
    assert f"grow-{mode}" in describe(plan)


def test_the_sentence_says_what_differs_from_the_defaults() -> None:
    plan = composed({"growth.mode": "tail", "growth.controller": "fixed", "growth.start": 1 / 3, "growth.cap": 1.0})
    assert "grow-tail (controller fixed" in describe(plan)
    assert "start 0.33" in describe(plan)
    assert "cap" not in describe(plan)
    assert from_toml(to_toml(plan)) == plan


def test_a_fixed_width_has_no_knobs_of_growing() -> None:
    found = compose(
        [Growth()],
        preferred_values({"growth.mode": "scratch", "growth.controller": "fixed"}),
        example_model(4),
        example_task(),
    )
    assert found.knobs.keys() == {f"growth.{name}" for name in ("mode", "start", "cap", "flops", "controller")}


def test_the_plugin_offers_what_a_prediction_costs_as_objectives() -> None:
    host = build_host()
    assert {"parameters", "flops"} <= host.objectives.keys()
    assert {"grow-scratch", "grow-tail"} <= host.extensions("torch").lowerings.keys()
    assert not {"grow-scratch", "grow-tail"} & host.extensions("ort").lowerings.keys()


def trained(
    folder: Path, mode: str, edit: Edit = RULE, split: int = 0, epochs: int = 8, memory: int = 0, **recipe: Any
) -> tuple[TorchBackend, TrialPlan, Outcome]:
    task, backend = digits(), TorchBackend()
    plan = TrialPlan(
        opened(backend, task).model,
        task_info(task),
        split=split,
        recipe=RecipePlan(epochs=epochs, optimiser="adam", learning_rate=3e-3, schedule="constant", **recipe),
        runtime=RuntimePlan(memory_bytes=memory),
    )
    plan = Growth().apply(plan, Knobs(mode, edit))
    return (
        backend,
        plan,
        opened(backend, task).train(Trial(plan, 1, Store(folder / "store"), folder / "weights.safetensors")),
    )


def width(outcome: Outcome) -> list[float]:
    """Return the widths after the last logged decision."""
    logged = [entry for entry in outcome.epochs if "controller_seconds" in entry]
    return [value for name, value in logged[-1].items() if name.endswith(".width")]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "split"), [("scratch", 0), ("tail", 0), ("tail", 1)])
def test_a_grown_network_trains_and_exports_what_it_scored(mode: str, split: int, tmp_path: Path) -> None:
    backend, plan, outcome = trained(tmp_path, mode, split=split)
    (tmp_path / "out").mkdir()
    exported = opened(backend, digits()).export(
        plan, tmp_path / "weights.safetensors", tmp_path / "out", trainable=False
    )
    assert exported.checks["largest_logit_difference"] <= 1e-4
    assert abs(exported.checks["local_accuracy"] - outcome.values["local_accuracy"]) <= 0.01
    assert exported.sections["evolved"][f"grow-{mode}"] == {
        name.removesuffix(".width"): value
        for entry in outcome.epochs
        for name, value in entry.items()
        if name.endswith(".width")
    }
    full = sum(block.parameters for block in plan.model.blocks)
    assert outcome.values["parameters"] < full
    assert outcome.values["flops"] < sum(block.flops for block in plan.model.blocks)
    assert any(note.startswith("final widths: ") for note in outcome.notes)


@pytest.mark.slow
def test_the_first_growths_are_forced_and_every_decision_is_logged(tmp_path: Path) -> None:
    _, _, outcome = trained(tmp_path, "scratch")
    added = [[value for name, value in entry.items() if name.endswith(".added")] for entry in outcome.epochs]
    assert added[0] == [0, 0, 0]
    assert all(added[1])
    assert all(added[2])
    assert [bool(column) for column in added] == [True] * 4 + [False] * 4  # no decision while the rate falls
    assert {"loss_before_growth", "loss_after_growth"} <= outcome.epochs[1].keys()
    assert width(outcome) == [
        sum(column) + start for column, start in zip(zip(*added[:4], strict=True), (1, 3, 6), strict=True)
    ]


@pytest.mark.slow
def test_the_same_seed_grows_the_same_widths(tmp_path: Path) -> None:
    one, two = (trained(tmp_path / name, "scratch")[2] for name in ("one", "two"))
    assert width(one) == width(two)
    assert one.values["local_accuracy"] == two.values["local_accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_carries_step_growth(adapter: str, tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", start=0.3, adapter=adapter)
    _, _, outcome = trained(tmp_path, "scratch", edit, epochs=5)
    assert width(outcome) == [6, 14, 30]
    assert outcome.values["local_accuracy"] > 0.3


@pytest.mark.slow
def test_a_cap_on_parameters_ends_growth(tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", cap=0.2)
    _, plan, outcome = trained(tmp_path, "scratch", edit, epochs=14)
    assert outcome.values["parameters"] <= 0.21 * sum(block.parameters for block in plan.model.blocks)
    assert width(outcome)[0] > 1


class Cut(Exception):  # noqa: N818 - what a kill looks like from inside
    pass


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_trial_that_was_cut_short_while_it_grew_continues_to_the_same_weights(
    tmp_path: Path, schedule: Schedule
) -> None:
    def cut(progress: Mapping[str, Any]) -> bool:
        if progress.get("step") == at:
            raise Cut
        return False

    _, plan, whole = trained(tmp_path / "whole", "scratch", patience=20, epochs=20)
    plan = replace(plan, recipe=replace(plan.recipe, schedule=schedule))
    results = []
    for name, at in (("whole", 0), ("cut", 45)):  # in the eighth of its epochs of 6 steps, of which two are a period
        weights, store = tmp_path / name / "again" / "weights.safetensors", Store(tmp_path / name / "store")
        if at:
            with pytest.raises(Cut):
                opened(TorchBackend(), digits()).train(Trial(plan, 1, store, weights, cut))
            assert weights.with_name(CHECKPOINT).stat().st_mode & 0o777 == 0o600
        results.append((opened(TorchBackend(), digits()).train(Trial(plan, 1, store, weights)), load_file(weights)))
        assert not weights.with_name(CHECKPOINT).exists()
    (undisturbed, left), (resumed, right) = results
    assert width(undisturbed) == width(resumed)
    assert [entry["loss"] for entry in undisturbed.epochs] == [entry["loss"] for entry in resumed.epochs]
    assert all(bool((left[name] == right[name]).all()) for name in left)
    assert len(whole.epochs) == len(resumed.epochs)


def test_a_file_that_is_another_trials_or_torn_is_no_checkpoint(tmp_path: Path) -> None:
    plan = replace(TrialPlan(example_model(4), example_task()), shape=(TailEdit("grow-tail", (), GROWS),))
    trial = Trial(plan, 1, Store(tmp_path / "store"), tmp_path / "weights.safetensors")
    one = Checkpoint(trial)
    assert one.read() is None
    one.path.write_bytes(b"PK torn")
    assert one.read() is None
    saved = {"key": one.key, "tail": {}, "loop": {}, "changes": {}, "noise": torch.zeros(1), "epochs": []}
    torch.save({**saved, "train_seconds": 1.0, "samples": 8}, one.path)
    found = one.read()
    assert found is not None
    assert found.train_seconds == 1.0
    assert Checkpoint(replace(trial, seed=2)).read() is None
    plain = Checkpoint(replace(trial, plan=replace(plan, shape=())))
    assert plain.read() is None


@pytest.mark.slow
def test_a_limit_on_memory_ends_growth(tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", start=0.3)
    held, free = (
        trained(tmp_path / str(memory), "scratch", edit, epochs=5, memory=memory)[2] for memory in (1, 10**12)
    )
    assert width(held) == [4, 9, 19]
    assert width(free) == [6, 14, 30]


@pytest.mark.slow
def test_a_cap_on_flops_ends_growth(tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", flops=0.2)
    _, plan, outcome = trained(tmp_path, "scratch", edit, epochs=14)
    assert outcome.values["flops"] <= 0.21 * sum(block.flops for block in plan.model.blocks)
    assert width(outcome)[0] > 1


def test_a_head_alone_has_nothing_to_grow_and_is_the_plan_without_growth() -> None:
    plan = replace(TrialPlan(example_model(4), example_task()), split=3)
    assert Growth().apply(plan, Knobs("tail", RULE)) == plan


def test_a_tail_that_cannot_grow_is_refused() -> None:
    with pytest.raises(TunerError, match=r"no width of the trained blocks can grow .*the model's output.*more blocks"):
        GrowingTail(nn.Sequential(nn.Linear(3, 2)), RULE, scratch=False)


@pytest.mark.slow
def test_a_start_wider_than_the_cap_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        TunerError, match=r"growth\.start = 0\.5 begins with [\d,]+ parameters, but growth\.cap = 0\.02 "
    ) as raised:
        trained(tmp_path, "scratch", replace(RULE, start=0.5, cap=0.02))
    assert str(raised.value).endswith(": lower growth.start or raise growth.cap")
    assert "\n" not in str(raised.value)


def test_an_edit_of_another_backend_is_not_supported() -> None:
    plan = replace(TrialPlan(example_model(4), example_task()), shape=(TailEdit("grow-sideways"),))
    lacking = build_host().extensions("torch").lacking(plan)
    assert lacking is not None
    assert lacking.startswith("no installed plugin realises tail edit 'grow-sideways' on torch (there are: ")
    assert "grow-scratch, grow-tail" in lacking
