"""A strategy, a backend or an optimiser that fails again and again takes no further part, and the study continues."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.search.conftest import Begin, Heard, InProcess
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.search.trials.strikes import Strikes

SHORT = 0.5  # a busy machine composes a plan in less
LONG = 60.0  # what never ends takes an hour


class Endless(Strategy[float]):
    """Neither draws a value nor names an anchor in time."""

    name, stage = "endless", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> float:
        time.sleep(3600)
        return draw.number("much", 0.0, 1.0 + model.num_blocks)

    def apply(self, plan: TrialPlan, knobs: float) -> TrialPlan:  # noqa: ARG002 - it is never reached
        return plan

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:
        raise SystemExit(model.num_blocks)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.plugin.load.calls.LEAST_SECONDS", SHORT)
    for module in ("tuner.search.study", "tuner.search.propose.anchors", "tuner.plugin.host"):
        monkeypatch.setattr(f"{module}.CALL_SECONDS", SHORT)


def test_a_strategy_that_hangs_wherever_plans_are_composed_leaves_the_study(
    short: None, begin: Begin, stand_in: InProcess, heard: Heard
) -> None:
    stand_in.host.strategies["endless"] = Endless()
    started = time.monotonic()
    study = begin(strategies=("gdm", "freeze", "cache", "endless"))
    study.prepare()
    study.run()
    assert time.monotonic() - started < LONG
    (line,) = [line for line in heard.lines if "takes no further part" in line]
    assert line.startswith("strategy 'endless': sample took longer than 0.5 s (test_strikes.py, line ")
    assert "done" in {record.state for record in study.records}


def test_a_backend_that_never_says_what_it_supports_costs_three_calls(
    short: None, begin: Begin, stand_in: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[TrialPlan] = []

    def supports(plan: TrialPlan) -> None:
        asked.append(plan)
        time.sleep(3600)

    monkeypatch.setattr(stand_in.host.backends["misbehaving"], "supports", supports)
    study = begin()
    study.prepare()
    study.run()
    assert len(asked) == 3
    assert {record.state for record in study.records} == {"rejected"}
    reasons = {record.reason for record in study.records}
    assert all(reason.startswith("plugin misbehaving: ") for reason in reasons)
    assert any("takes no further part" in reason for reason in reasons)


def test_an_optimiser_that_fails_is_counted_by_its_name() -> None:
    said: list[str] = []
    strikes = Strikes(said.append)
    made_up: Any = type("Composed", (), {"editors": {"low-rank": "lora"}, "plan": _plan_with("lion")})
    for _ in range(3):
        strikes.count_fault("lion", "plugin 'zoo', optimiser 'lion': raised ValueError: no", made_up)
        strikes.count_fault("", "something else", made_up)
    assert strikes.barred == {"lion"}
    strikes.count_fault("low-rank", "lowering 'low-rank': no", made_up)
    assert strikes.barred == {"lion"}
    (line,) = said
    assert line.endswith("raised ValueError: no; optimiser 'lion' failed 3 times and takes no further part")


def _plan_with(optimiser: str) -> Any:
    return type("Plan", (), {"recipe": type("Recipe", (), {"optimiser": optimiser})})
