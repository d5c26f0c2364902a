"""`tuner show RUN --plot`: a run drawn with letters."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.results.folder import Spent
from tuner.results.run import Run
from tuner_report.charts.letters import plots

OLD = Path(__file__).parents[2] / "fixtures" / "digits" / "run"
RUN = Run.open(OLD)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_time_and_growth_are_bars_and_every_line_is_as_wide_as_allowed(width: int) -> None:
    spent = Spent(9.0, phases={"features": 6.0, "rung 0": 3.0})
    drawn = plots(replace(RUN, info=replace(RUN.info, spent=spent)), width)
    assert max(map(len, drawn.partition("● front")[0].splitlines())) <= width
    features, trials = (
        line.count("█") for line in drawn.splitlines() if line.lstrip().startswith(("features", "rung"))
    )
    assert features == pytest.approx(2 * trials, abs=1)
    assert "0.912 on all samples, until 1.7 s" in drawn


def test_the_untouched_model_and_the_front_are_where_they_belong() -> None:
    first, second, *_ = plots(RUN, 80).split("\n\n")
    rows = first.splitlines()
    assert rows[0] == "local accuracy over global accuracy"
    assert rows[1].startswith("  99.1 % │")
    assert rows[1].count("●") + rows[1].count("◉") == 3
    assert rows[14].startswith("   0.0 % │")
    assert rows[14].endswith("★")
    assert rows[-1].split() == ["77.0", "%", "99.6", "%"]
    assert "training time" in second
    assert "★" not in second


def test_the_command_draws_and_takes_no_other_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", str(OLD), "--plot"]) == 0
    assert "◉" in capsys.readouterr().out
    assert call(["show", str(OLD), "--plot", "--all"]) == 2
    empty = replace(RUN, info=replace(RUN.info, spent=Spent()), records=(), front=(), knee=None, best=None)
    assert plots(empty, 80).startswith("No trial obeys every limit")
