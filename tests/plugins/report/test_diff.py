"""`tuner diff`: two runs side by side."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.printed import printed_json
from tests.plugins.fleet.test_kinds import FAST, KINDS, SLOW, SMALL
from tuner.cli.app import call
from tuner.results.kinds import Device
from tuner.results.run import Run
from tuner_report.diff import diff, format_diff

OLD = Path(__file__).parents[2] / "fixtures"
RUN = OLD / "digits" / "run"


def text(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert call([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_two_runs_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = Run.open(RUN)
    limits = replace(run.info.config.limits, memory_bytes=10**9)
    info = replace(run.info, config=replace(run.info.config, limits=limits, seed=7))
    weaker = replace(run, folder=tmp_path, info=info, front=(3,), shortlist=(3,), knee=3, best=3)
    found = diff(run, weaker)
    assert found.asked == {"seed": (0, 7), "memory_bytes": (None, 10**9)}
    assert found.notes == ()
    assert found.beaten == (0, 0)  # trial 3 is on both fronts
    assert found.results["hypervolume"][0] > found.results["hypervolume"][1]
    assert found.results["pick_local_accuracy"] == (
        run.record(0).values["local_accuracy"],
        run.record(3).values["local_accuracy"],
    )
    assert found.picks[1]["best"] == 3
    slow = replace(run.record(3), values=run.record(3).values | {"train_seconds": 1.0})  # trial 0 beats it
    worst = replace(weaker, records=(*run.records[:3], slow))
    assert diff(run, worst).beaten == (0, 1)
    content = printed_json(capsys, "diff", RUN, OLD / "exits" / "run")
    assert content["asked"]["seed"] == [0, 1]
    assert content["notes"] == ["the objectives differ"]
    assert content["beaten"] is None
    shown = text(capsys, "diff", RUN, RUN)
    assert "asked: the same of both" in shown
    assert "a trial of B beats 0 of 4 trials on the front of A" in shown
    assert "  0: 99.1 % (95–100), 92.1 % (88–95), 0.257 s (best, fastest, " in shown


def test_runs_of_other_tasks_are_not_compared_sample_by_sample(capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(text(capsys, "diff", RUN, OLD / "signals" / "run", "--json"))
    assert content["notes"][0] == "the tasks differ: accuracies are of different samples"
    assert content["beaten"] is None


def test_runs_of_equally_fast_devices_are_compared_in_costs() -> None:
    run = Run.open(RUN)
    config = replace(run.info.config, deterministic=False)

    def on(device: Device) -> Run:
        return replace(run, info=replace(run.info, config=config, kind=device.name, kinds=KINDS))

    assert diff(on(FAST), on(SMALL)).notes == ()
    (line,) = diff(on(FAST), on(SLOW)).notes
    assert line == f"costs are of different kinds of devices: {FAST} ({FAST.name}) and {SLOW} ({SLOW.name})"


def test_runs_of_tasks_with_numbers_are_compared_by_r_squared() -> None:
    run = Run.open(RUN)
    run = replace(run, info=replace(run.info, task=replace(run.info.task, loss="regression")))
    shown = format_diff(diff(run, run), {one.name: one for one in run.objectives})
    assert "local R²" in shown
    assert "accuracy" not in shown
    assert "95 %" not in shown
