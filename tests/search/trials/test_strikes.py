"""A strategy, a backend or an optimiser that fails again and again takes no further part, and the study continues."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.search.conftest import Begin, Heard, InProcess
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.results.records.config import Budget
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search import stopping
from tuner.search.processes.guard import JobResult
from tuner.search.processes.messages import Failure
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
    for module in ("tuner.search.trials.strikes", "tuner.search.propose.anchors", "tuner.plugin.host"):
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
    monkeypatch.setattr(stopping, "REFUSALS_IN_A_ROW", 10)
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


LEFT = "strategy 'coreset' failed 3 times and takes no further part"


@pytest.fixture
def failing(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], bool]], None]:
    """Let the selector fail in trainings of which a function says so."""

    def begin(fails: Callable[[Any], bool]) -> None:
        really = stand_in.run

        def run(job: Any, *rest: Any) -> Any:
            if job.method == "train" and fails(job.arguments["trial"].plan):
                return JobResult("failure", failure=Failure("selector 'herding': no", "trace", edit="herding"))
            return really(job, *rest)

        monkeypatch.setattr(stand_in, "run", run)

    return begin


def test_a_selector_that_fails_three_times_takes_its_strategy_out_of_the_study(
    begin: Begin, heard: Any, failing: Any, stand_in: Any
) -> None:
    failing(lambda _plan: len([one for one in heard.records if one.state == "failed"]) < 3)
    study = begin(Budget(trials=5), strategies=("coreset", "freeze", "cache"))
    study.run()
    asked = [job.arguments["trial"].objectives for job in stand_in.jobs if job.method == "train"]
    assert set(asked) == {tuple(one.name for one in OBJECTIVES)}
    assert [record.state for record in study.records] == ["failed"] * 3 + ["done"] * 2
    assert {record.reason for record in study.records[:3]} == {"selector 'herding': no"}
    assert [line for line in heard.lines if LEFT in line]
    assert "coreset.alpha" not in study.records[-1].knobs


@pytest.mark.usefixtures("ladder_of_three")
def test_what_a_removed_strategy_took_part_in_is_not_promoted_as_another_plan(
    begin: Begin, heard: Any, failing: Any
) -> None:
    failing(lambda plan: len(heard.records) >= 8 and plan.data.edit is not None)
    wanted: dict[str, Scalar] = {"gdm.weight": 1.0, "gdm.balance": False}
    strategies = ("gdm", "coreset", "freeze", "cache")
    study = begin(Budget(trials=40), strategies=strategies, wanted=wanted, sampler="random")  # half of them choose
    study.run()
    assert [line for line in heard.lines if LEFT in line]
    chosen = [one.trial for one in study.records if one.state == "done" and one.plan and one.plan.data.edit]
    assert chosen
    promoted = [one for one in study.records if one.promoted is not None and one.plan is not None]
    assert {one.plan.data.edit is None for one in promoted if one.plan} == {False, True}
    for one in promoted:
        first = study.records[one.promoted or 0].plan
        assert one.plan is not None
        assert first is not None
        assert first.data.edit in {None, one.plan.data.edit}  # of few samples, all candidates may be chosen: no edit
