"""The loss that `tuner export` allows, of trials in float32 and in int8."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import tuner
from tuner.commands.bundles import export as command
from tuner.plan.parts import RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial

OLD = Path(__file__).parents[1] / "fixtures" / "digits" / "run"


class WrittenError(Exception):
    """In the place of a bundle: what it would have been written from."""

    def __init__(self, plan: TrialPlan) -> None:
        self.plan = plan


def written_plan(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: float | bool) -> TrialPlan:
    """Return the plan that an export of a trial in a precision writes."""

    def in_precision(run: Run, pick: str) -> TrialRecord:
        record = pick_trial(run, pick)
        assert record.plan is not None
        own = RuntimePlan() if precision == "fp32" else RuntimePlan(precision="int8", int8_loss=1.0)
        return replace(record, plan=replace(record.plan, runtime=own))

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        yield

    def write(_: object, plan: TrialPlan, *__: object, **___: object) -> None:
        raise WrittenError(plan)

    monkeypatch.setattr(command, "pick_trial", in_precision)
    monkeypatch.setattr(command, "opened_run", session)
    monkeypatch.setattr(command, "write_bundle", write)
    with pytest.raises(WrittenError) as written:
        tuner.export(Run.open(OLD), tmp_path / "out", "3", task="digits", refit=False, **options)  # type: ignore[arg-type]
    return written.value.plan


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(("options", "most_loss"), [({}, 0.01), ({"int8_loss": 2.5}, 0.025)])
def test_int8_may_cost_a_point_unless_more_is_allowed(
    precision: str, options: dict[str, float], most_loss: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = written_plan(precision, tmp_path, monkeypatch, int8=True, **options)
    assert plan.runtime.precision == "int8"
    assert plan.runtime.int8_loss == pytest.approx(most_loss)


def test_a_trial_in_int8_is_exported_as_it_was_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_plan("int8", tmp_path, monkeypatch).runtime.int8_loss == 1
    assert written_plan("int8", tmp_path, monkeypatch, int8_loss=0.5).runtime.int8_loss == pytest.approx(0.005)
