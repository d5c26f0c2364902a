"""All trials of a run, and a bundle's card."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.printed import printed_json
from tuner.cli.app import call
from tuner.results.folder import append_record
from tuner.results.run import Run
from tuner.runtime import Bundle

OLD = Path(__file__).parents[2] / "fixtures"
RUN, BUNDLE = OLD / "digits" / "run", OLD / "digits" / "bundle"


def text(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert call([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def refusing(tmp_path: Path) -> Run:
    """A run with a refused, a killed and a repeated trial at its end."""
    shutil.copytree(RUN, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    last = run.records[-1]
    more = (
        replace(
            last, trial=4, state="rejected", values={}, reason="expected 2.0 GB of memory", constraint={"memory": 0.7}
        ),
        replace(last, trial=5, state="killed", values={}, reason="took 1.1 GB", constraint={"memory": 0.1, "time": -1}),
        replace(last, trial=6, same_as=3),
        replace(last, trial=7, state="failed", values={}, reason="KeyError", constraint={"failed": 1.0}),
    )
    for record in (*run.records, *more):
        append_record(tmp_path / "run", record)
    return Run.open(tmp_path / "run")


def test_all_trials_are_shown_with_the_reason_of_a_refusal(refusing: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = text(capsys, "show", refusing.folder, "--trials").splitlines()
    assert lines[0].split() == ["trial", "state", "rung", "local", "accuracy", "global", "accuracy", "train", "seconds"]
    values = next(line for line in lines if line.startswith("  → 0  done"))
    assert ("99.1 %" in values, "92.1 %" in values, "0.257 s" in values) == (True, True, True)
    below = {line.split()[0]: lines[number + 1].strip() for number, line in enumerate(lines[:-1])}
    assert below["4"] == "expected 2.0 GB of memory"
    assert below["5"] == "took 1.1 GB"
    assert below["6"] == "the same plan as trial 3, whose values these are"
    assert lines[-2] == "do not count: 2 because of --memory, 1 because of failures"
    assert lines[-1] == "trials: 4 done, 1 rejected, 0 stopped, 1 killed, 1 failed"
    content = printed_json(capsys, "show", refusing.folder, "--trials")
    assert [trial["state"] for trial in content["trials"]][4:] == ["rejected", "killed", "done", "failed"]
    assert content["trials"][4]["constraint"] == {"memory": 0.7}


@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_a_bundle_shows_its_card(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = OLD / name / "bundle"
    info = Bundle.open(folder).info
    shown = text(capsys, "show", folder)
    assert f"plan: {info.sentence}" in shown.splitlines()
    accuracy = info.scores.from_pixels["local_accuracy"]
    assert f"local accuracy: {100 * accuracy:.1f} % (95 % interval " in shown
    assert f"classes: {len(info.labels)} ({', '.join(info.labels)})" in shown
    assert ("trains again without PyTorch: yes" in shown) == (info.train is not None)
    assert "licence: " in shown
    content = printed_json(capsys, "show", folder)
    assert content["bytes"] == {path: (folder / path).stat().st_size for path in info.files}
    assert content["trainable"] == (info.train is not None)
    low, high = content["intervals"]["local_accuracy"]
    assert low < accuracy < high
    assert content["labels"] == list(info.labels)


def test_the_card_of_digits(capsys: pytest.CaptureFixture[str]) -> None:
    lines = text(capsys, "show", BUNDLE).splitlines()
    assert "local accuracy: 98.1 % (95 % interval 93–99), untouched model 0.0 %" in lines
    assert "test accuracy: 91.6 %" in lines
    assert "size: model 107.7 kB, 26,090 parameters; whole bundle 501.5 kB" in lines


def test_a_damaged_bundle_has_no_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    (tmp_path / "bundle" / "model.onnx").write_bytes(b"0")
    assert call(["show", str(tmp_path / "bundle")]) == 1
    assert "model.onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[RUN, "3", "--all"], [RUN, "--all", "--trials"], [BUNDLE, "3"], [BUNDLE, "--trials"], [RUN, "three"]]
)
def test_what_cannot_be_shown_together_is_wrong_usage(
    arguments: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["show", *map(str, arguments)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("command", ["show", "predict", "run"])
def test_a_name_too_long_for_a_file_is_one_line(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.commands.tune.run.process_started", time.monotonic)  # --time counts from the call
    assert call([command, "n" * 300]) in {1, 2}
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("tuner: ")
