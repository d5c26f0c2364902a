"""The demonstration's last lines: the answer, and where the report is."""

from pathlib import Path

import pytest
from rich.console import Console

from tuner.cli.run import print_demo
from tuner.commands.demo import Demo, Example
from tuner.runtime import Prediction


def test_the_demo_ends_with_the_answer_and_the_reports_path(capsys: pytest.CaptureFixture[str]) -> None:
    example = Example(Path("digit-0.npy"), Prediction("8", 0.99, 0, 0.001), "8")
    demo = Demo(
        Path("run"), 3, Path("bundle"), (example,), {"report": Path("report.html")}, "Training it takes 7 to 9 up."
    )
    print_demo(demo, Console())
    lines = capsys.readouterr().out.splitlines()
    assert "digit-0.npy: predicted 8 (99 %), the true label is 8" in lines
    assert lines[-2:] == [demo.answer, "report: report.html"]
