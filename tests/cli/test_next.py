"""What is printed last: the commands after a run work as they stand, and the demo ends with its answer."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import tuner
from tuner.cli.app import add_commands, app, call
from tuner.cli.text.run import print_run
from tuner.cli.text.screen import next_commands
from tuner.errors import RunError
from tuner.results.folder import ExportInfo, append_export
from tuner.results.run import Run
from tuner.runtime import Prediction
from tuner_demo.commands import print_demo
from tuner_demo.digits import Demo, Example

OLD = Path(__file__).parents[1] / "fixtures" / "digits" / "run"
ADDRESS = "postgresql://board/studies"


def shared(worker: str) -> Run:
    """Return the run as a worker's folder, or as a copy of a study."""
    run = Run.open(OLD)
    config = replace(run.info.config, study=ADDRESS)
    return replace(run, info=replace(run.info, config=config, worker=worker))


def test_they_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    export, show = map(shlex.split, next_commands(Run.open(OLD)))
    assert call(show[1:]) == 0
    assert capsys.readouterr().out.startswith("trial 0")
    add_commands()
    _, bound, _ = app.parse_args(export[1:], exit_on_error=False)
    assert bound.args == (str(OLD), Path("run-bundle"))


def test_a_bundle_that_was_exported_is_not_named_again(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    append_export(tmp_path / "run", ExportInfo("run-bundle", 0, refit=True))
    assert next(next_commands(Run.open(tmp_path / "run"))).endswith("run-bundle-2")


def test_of_a_study_the_winner_is_exported_from_where_its_weights_are() -> None:
    export, _ = map(shlex.split, next_commands(shared("me"), "s3://weights"))
    assert export == ["tuner", "export", ADDRESS, "run-bundle", "--artifacts", "s3://weights"]
    add_commands()
    _, bound, _ = app.parse_args(export[1:], exit_on_error=False)
    assert bound.kwargs["artifacts"] == "s3://weights"


@pytest.mark.parametrize(
    ("worker", "hint"),
    [("me", f"next: tuner export {OLD} run-bundle\n"), ("", f"{ADDRESS} run-bundle --artifacts WHERE\n")],
)
def test_a_study_is_exported_with_artifacts(worker: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_run(shared(worker), Console(width=400))
    assert hint in capsys.readouterr().out


def test_a_trial_of_another_worker_names_the_study(tmp_path: Path) -> None:
    run = replace(shared("me"), folder=tmp_path)
    with pytest.raises(RunError, match=f"another worker: export the study, tuner export {ADDRESS} OUT --artifacts"):
        tuner.export(run, tmp_path / "out")


def test_the_demo_ends_with_predictions_and_the_reports_path(capsys: pytest.CaptureFixture[str]) -> None:
    example = Example(Path("digit-0.npy"), Prediction("8", 0.99, 0, 0.001), "8")
    demo = Demo(Path("run"), 3, Path("bundle"), (example,), {"report": Path("report.html")})
    print_demo(demo, Console())
    lines = capsys.readouterr().out.splitlines()
    assert "digit-0.npy: predicted 8 (99 %), the true label is 8" in lines
    assert lines[-1] == "report: report.html"
