"""What is found in a user's samples: labels that were planted wrong, and what more samples brought in truth."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.sessions import barely_pretrained, opened
from tests.slants import write_task
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.tensors import read_tensors
from tuner.cli.app import call
from tuner.store.store import open_store
from tuner_check import findings
from tuner_check.commands import lines
from tuner_check.curves import Gain, gain_of_class
from tuner_check.left_out import Evidence

CLASSES, EACH, FEATURES = 5, 40, 24


def drawn(each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of classes around random means, and their classes; the first two are alike."""
    means = 1.2 * np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    means[1] = means[0] + 0.4 * (means[1] - means[0])
    y = np.repeat(np.arange(CLASSES), each)
    return means[y] + np.random.default_rng(seed).normal(size=(len(y), FEATURES)), y


@pytest.fixture(scope="module")
def planted() -> tuple[findings.Findings, set[str]]:
    """Look at samples of which every tenth has another class's label; return what is found, and these."""
    x, y = drawn(EACH, 1)
    wrong = np.random.default_rng(2).choice(len(y), len(y) // 10, replace=False)
    y[wrong] = (y[wrong] + 1 + np.arange(len(wrong)) % (CLASSES - 1)) % CLASSES
    files = [f"{at}.jpg" for at in range(len(y))]
    found = findings.findings_of(x, y + 3, files, ["old"] * 3 + list("abcde"), 20)
    return found, {files[at] for at in wrong}


def test_labels_that_were_planted_wrong_are_found(planted: tuple[findings.Findings, set[str]]) -> None:
    found, wrong = planted
    listed = [suspect.file for suspect in found.suspects]
    hits = len(wrong.intersection(listed))
    assert hits >= 0.7 * len(wrong)  # recall
    first = listed[: len(wrong)]
    assert len(wrong.intersection(first)) >= 0.7 * len(first)  # precision
    assert abs(found.wrong - hits) <= 0.3 * hits
    likely = [one.wrong for one in found.suspects]
    assert likely == sorted(likely, reverse=True)
    assert all(one.label != one.instead and {one.label, one.instead} <= set("abcde") for one in found.suspects)


@pytest.mark.parametrize("wrong", [0, 2])
def test_where_few_labels_are_wrong_few_are_expected_to_be(wrong: int) -> None:
    """The first two classes are alike: what the head takes for the other one need not be wrong."""
    x, y = drawn(EACH, 1)
    y[-wrong or len(y) :] = 2
    found = findings.findings_of(x, y, [str(at) for at in range(len(y))], list("abcde"), 20)
    assert {suspect.file for suspect in found.suspects[:wrong]} == {str(at) for at in range(len(y) - wrong, len(y))}
    assert len(found.suspects) <= 3 * wrong
    assert abs(found.wrong - wrong) < 1
    text = [*lines(found)]
    assert text[0].endswith("expected to be wrong. The likeliest first:" if wrong else "others contradict.")


def test_a_sample_does_not_speak_for_its_own_label() -> None:
    x, y = drawn(8, 3)
    evidence = Evidence.of(x, y)
    without = evidence.answers(np.arange(1, len(y)))[0]  # its class then weighs the same, with a sample less
    assert abs(evidence.scores[0] - without).max() < 0.1
    moved = np.where(np.arange(len(y)) == 0, (y + 1) % CLASSES, y)
    assert abs(Evidence(evidence.x, moved, evidence.penalty).scores[0] - without).max() < 0.1


def test_gains_that_are_told_from_half_of_the_samples_hold_for_the_other_half() -> None:
    x, y = drawn(EACH, 4)
    others, truth = drawn(300, 5)
    half = np.arange(len(y)) % 2 == 0
    few, inside = Evidence.of(x[half], y[half]), list[bool]()

    def share(rows: np.ndarray, row: int) -> float:
        both = Evidence.of(np.concatenate([x[rows], others]), np.concatenate([y[rows], truth]))
        right = Evidence(both.x, both.y, few.penalty).answers(np.arange(len(rows))).argmax(axis=1)[len(rows) :] == truth
        return float(100 * right[truth == row].mean())

    for row in range(CLASSES):
        gain = gain_of_class(few, row, EACH // 2)
        assert gain is not None
        assert gain.low <= gain.likely <= gain.high
        more = share(np.flatnonzero(half | (y == row)), row) - share(np.flatnonzero(half), row)
        inside.append(gain.low - 3 <= more <= gain.high + 3)  # points that 300 others are uncertain by
    assert sum(inside) >= CLASSES - 1


def test_gains_in_words() -> None:
    assert Gain(20, 1.2, 2.0, 3.4).text() == "20 more: +1 to +3 points"
    assert Gain(20, -1.7, 0.4, 4.2).text() == "20 more: -2 to +4 points, the data cannot tell"
    assert Gain(5, -0.2, 0.1, 0.3).text() == "5 more: less than a point"
    assert Gain(5, 0.8, 1.0, 1.2).text() == "5 more: +1 point"


def test_the_command_lists_and_writes(
    planted: tuple[findings.Findings, set[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(findings, "check", lambda *_: planted[0])
    out = tmp_path / "suspects.csv"
    assert call(["check", "task.toml", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Of 200 samples, {len(planted[0].suspects)} may have a wrong label, and up to about ")
    assert "  every class: 20 more: " in text
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["file"] for row in rows] == [suspect.file for suspect in planted[0].suspects]
    assert call(["check", "task.toml", "--out", str(out)]) == 1
    assert "exists" in capsys.readouterr().err
    assert call(["check", "task.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suspects"][0]["file"] == rows[0]["file"]
    assert call(["check", "task.toml", "--more", "0"]) == 2


@pytest.mark.slow
def test_numbers_have_no_classes_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["check", str(write_task(tmp_path))]) == 1
    assert "one class a sample" in capsys.readouterr().err


@pytest.mark.slow
def test_the_head_reads_what_is_written(tmp_path: Path) -> None:
    task = barely_pretrained()
    session, file = opened(TorchBackend(), task), tmp_path / "features.safetensors"
    names = session.ask(
        "inputs of the head", partition="local.val", store=open_store(tmp_path / "store"), threads=1, file=file
    )
    found = read_tensors(file)
    assert len(names) == len(found["features"]) == len(task.local.val)
    assert found["labels"].tolist() == task.local.val.labels.tolist()
    assert names[0] == task.local.val.name(0)
