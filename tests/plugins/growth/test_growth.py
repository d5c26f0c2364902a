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
from tuner.backends.base import CHECKPOINT, Trial, silent
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.trial.checkpoint import Checkpoint
from tuner.errors import TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import RecipePlan, RuntimePlan, Scalar, TailEdit
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
from tuner.training.epochs import Report
from tuner_growth import ADAPTERS, GROWS, Growth, Knobs
from tuner_growth.edit import Edit
from tuner_growth.torch.tail import GrowingTail

RULE = Edit(start=0.1, cap=1.0, controller="ric", horizon=3, penalty=0.1, adapter="dspa")


def composed(values: dict[str, Scalar]) -> TrialPlan:
    return compose([Growth()], preferred_values(values), example_model(4), example_task()).plan


def test_the_rules_are_in_the_plan_and_its_sentence_says_what_differs_from_the_defaults() -> None:
    plan = composed({"growth.mode": "scratch", "growth.start": 0.1, "growth.adapter": "cgap"})
    assert [edit.kind for edit in plan.shape] == ["grow-scratch"]
    assert composed({"growth.mode": "none"}).shape == ()
    settings = dict(plan.shape[0].settings)
    assert settings["adapter"] == "cgap"
    assert settings["start"] == pytest.approx(0.1)
    capped: dict[str, Scalar] = {
        "growth.mode": "tail",
        "growth.controller": "fixed",
        "growth.start": 1 / 3,
        "growth.cap": 1.0,
    }
    assert dict(composed({**capped, "growth.flops": 0.2}).shape[0].settings)["start"] == pytest.approx(0.2)
    plan = composed({**capped, "growth.flops": 1.0})
    assert "grow-tail (controller fixed" in describe(plan)
    assert "start 0.33" in describe(plan)
    assert "cap" not in describe(plan)
    assert from_toml(to_toml(plan)) == plan


def test_a_fixed_width_has_no_knobs_of_growing() -> None:
    wanted = preferred_values({"growth.mode": "scratch", "growth.controller": "fixed"})
    found = compose([Growth()], wanted, example_model(4), example_task())
    assert found.knobs.keys() == {f"growth.{name}" for name in ("mode", "start", "cap", "flops", "controller")}


def test_the_plugin_offers_what_a_prediction_costs_as_objectives() -> None:
    host = build_host()
    assert {"parameters", "flops"} <= host.objectives.keys()
    assert {"grow-scratch", "grow-tail"} <= host.extensions("torch").lowerings.keys()
    assert not {"grow-scratch", "grow-tail"} & host.extensions("ort").lowerings.keys()


def planned(mode: str, edit: Edit = RULE, split: int = 0, epochs: int = 8, memory: int = 0, **recipe: Any) -> TrialPlan:
    task, settings = digits(), {"optimiser": "adam", "learning_rate": 3e-3, "schedule": "constant", **recipe}
    plan = TrialPlan(
        opened(TorchBackend(), task).model,
        task_info(task),
        split=split,
        recipe=RecipePlan(epochs=epochs, **settings),
        runtime=RuntimePlan(memory_bytes=memory),
    )
    return Growth().apply(plan, Knobs(mode, edit))


def train(plan: TrialPlan, folder: Path, report: Report = silent) -> Outcome:
    trial = Trial(plan, 1, Store(folder / "store"), folder / "weights.safetensors", report)
    return opened(TorchBackend(), digits()).train(trial)


def width(outcome: Outcome) -> list[float]:
    """Return the widths after the last logged decision."""
    logged = [entry for entry in outcome.epochs if "controller_seconds" in entry]
    return [value for name, value in logged[-1].items() if name.endswith(".width")]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "split"), [("scratch", 0), ("tail", 0), ("tail", 1)])
def test_a_grown_network_trains_and_exports_what_it_scored(mode: str, split: int, tmp_path: Path) -> None:
    plan = planned(mode, split=split)
    outcome = train(plan, tmp_path)
    added = [[value for name, value in entry.items() if name.endswith(".added")] for entry in outcome.epochs]
    assert [bool(column) for column in added] == [True] * 4 + [False] * 4  # no decision while the rate falls
    assert not any(added[0])
    if mode == "scratch":  # the first growths are forced
        assert all(added[1] + added[2])
        assert width(outcome) == [
            sum(column) + start for column, start in zip(zip(*added[:4], strict=True), (1, 3, 6), strict=True)
        ]
    assert {"loss_before_growth", "loss_after_growth"} <= outcome.epochs[1].keys()
    (tmp_path / "out").mkdir()
    session = opened(TorchBackend(), digits())
    exported = session.export(plan, tmp_path / "weights.safetensors", tmp_path / "out", trainable=False)
    assert exported.checks["largest_logit_difference"] <= 1e-4
    assert abs(exported.checks["local_accuracy"] - outcome.values["local_accuracy"]) <= 0.01
    assert exported.sections["evolved"][f"grow-{mode}"] == {
        name.removesuffix(".width"): value
        for entry in outcome.epochs
        for name, value in entry.items()
        if name.endswith(".width")
    }
    for name in ("parameters", "flops"):
        assert outcome.values[name] < sum(getattr(block, name) for block in plan.model.blocks)
    assert any(note.startswith("final widths: ") for note in outcome.notes)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_carries_step_growth(adapter: str, tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", start=0.3, adapter=adapter)
    outcome = train(planned("scratch", edit, epochs=5), tmp_path)
    assert width(outcome) == [6, 14, 30]
    assert outcome.values["local_accuracy"] > 0.3


@pytest.mark.slow
def test_a_limit_on_memory_ends_growth(tmp_path: Path) -> None:
    edit = replace(RULE, controller="exponential", start=0.3)
    assert width(train(planned("scratch", edit, epochs=5, memory=1), tmp_path)) == [4, 9, 19]  # else 6, 14 and 30


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "value"), [("cap", "parameters"), ("flops", "flops")])
def test_a_cap_on_what_a_prediction_costs_ends_growth(cap: str, value: str, tmp_path: Path) -> None:
    caps: dict[str, Any] = {cap: 0.2}
    plan = planned("scratch", replace(RULE, controller="exponential", **caps), epochs=14)
    outcome = train(plan, tmp_path)
    assert outcome.values[value] <= 0.21 * sum(getattr(block, value) for block in plan.model.blocks)
    assert width(outcome)[0] > 1


class Cut(Exception):  # noqa: N818 - what a kill looks like from inside
    pass


@pytest.mark.slow
def test_a_trial_that_was_cut_short_while_it_grew_continues_to_the_same_weights(tmp_path: Path) -> None:
    def cut(progress: Mapping[str, Any]) -> bool:
        if progress.get("step") == 45:  # in the eighth of its epochs of 6 steps, of which two are a period
            raise Cut
        return False

    plan, file = planned("scratch", patience=20, epochs=20, schedule="cosine"), "weights.safetensors"
    undisturbed = train(plan, tmp_path / "whole")
    with pytest.raises(Cut):
        train(plan, tmp_path / "cut", cut)
    assert (tmp_path / "cut" / CHECKPOINT).stat().st_mode & 0o777 == 0o600
    resumed = train(plan, tmp_path / "cut")
    assert not list(tmp_path.rglob(CHECKPOINT))
    left, right = (load_file(tmp_path / name / file) for name in ("whole", "cut"))
    assert width(undisturbed) == width(resumed)
    assert [entry["loss"] for entry in undisturbed.epochs] == [entry["loss"] for entry in resumed.epochs]
    assert all(bool((left[name] == right[name]).all()) for name in left)


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


def test_a_head_alone_has_nothing_to_grow_and_is_the_plan_without_growth() -> None:
    plan = replace(TrialPlan(example_model(4), example_task()), split=3)
    assert Growth().apply(plan, Knobs("tail", RULE)) == plan


def test_a_tail_that_cannot_grow_is_refused() -> None:
    with pytest.raises(TunerError, match=r"no width of the trained blocks can grow .*the model's output.*more blocks"):
        GrowingTail(nn.Sequential(nn.Linear(3, 2)), RULE, scratch=False)


@pytest.mark.slow
def test_a_start_wider_than_the_cap_is_reported_in_one_line(tmp_path: Path) -> None:
    line = r"^growth\.start = 0\.5 begins with [\d,]+ parameters, but growth\.cap = 0\.02 .*: lower growth.start or "
    with pytest.raises(TunerError, match=line):
        train(planned("scratch", replace(RULE, start=0.5, cap=0.02)), tmp_path)
