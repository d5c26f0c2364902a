"""A study with a strategy whose selector fails; and what a study's trials are asked to measure."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.search.conftest import Begin
from tuner.plan.parts import Scalar
from tuner.results.records.config import Budget
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.processes.guard import JobResult
from tuner.search.processes.messages import Failure

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
    begin: Begin, heard: Any, failing: Any
) -> None:
    failing(lambda _plan: len([one for one in heard.records if one.state == "failed"]) < 3)
    study = begin(Budget(trials=5), strategies=("coreset", "freeze", "cache"))
    study.run()
    assert [record.state for record in study.records] == ["failed"] * 3 + ["done"] * 2
    assert {record.reason for record in study.records[:3]} == {"selector 'herding': no"}
    assert [line for line in heard.lines if LEFT in line]
    assert "coreset.alpha" not in study.records[-1].knobs


def test_a_trial_is_asked_to_measure_the_objectives(begin: Begin, stand_in: Any) -> None:
    begin(Budget(trials=1)).run()
    (trial,) = [job.arguments["trial"] for job in stand_in.jobs if job.method == "train"]
    assert trial.objectives == tuple(one.name for one in OBJECTIVES)


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
