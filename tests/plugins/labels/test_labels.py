"""Proposals for a map of labels, and samples that speak against one."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sessions import opened
from tests.slants import write_task
from tuner.backends.torch.backend import TorchBackend
from tuner.cli.app import call
from tuner.task import Task, open_task
from tuner.task.data.samples import wholes
from tuner.task.file.toml import task_from_toml
from tuner_labels import suggestions
from tuner_labels.names import likeness

TASK = """
[model]
factory = "net.py:net"
arguments = { outputs = 3 }
[global]
kind = "signals"
train = "g"
[local]
kind = "signals"
train = "l"
[input]
window = 10
[loss]
kind = "multi-label"
[labels]
"""


NET = """
from torch import nn

def net(outputs):
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.Flatten(), nn.Linear(32, outputs))
"""


def record(path: Path, seed: int) -> None:
    """Write a recording of two windows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.random.default_rng(seed).normal(size=(2, 20)))


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a task whose local labels are not mapped yet."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    for place, names in (("g", ("Bark", "Rain", "Waves, surf")), ("l", ("dog_bark", "sea_waves"))):
        for at, name in enumerate(names):
            for number in range(4):
                record(tmp_path / place / name / f"{number}.npy", number + 9 * at)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "task.toml").write_text(TASK)
    return tmp_path / "task.toml"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model find rain in what the user calls a bark, but for one file, and waves in waves."""

    def probabilities(task: Task, _limits: object) -> np.ndarray:
        files, _ = wholes(task.local.train)
        rows = {"dog_bark": [0.1, 0.8, 0.1], "sea_waves": [0.1, 0.2, 0.9]}
        found = np.array([rows[Path(file).parent.name] for file in files])
        found[next(at for at, file in enumerate(files) if "dog_bark" in file)] = [0.7, 0.9, 0.1]
        return found

    monkeypatch.setattr(suggestions, "_probabilities", probabilities)


def test_likeness_is_between_nothing_and_the_same_and_largest_for_the_right_name() -> None:
    right = {
        "dog_bark": "Bark",
        "sea_waves": "Waves, surf",
        "crying_baby": "Baby cry, infant cry",
        "rooster": "Chicken, rooster",
        "KeyboardTyping": "Computer keyboard",
        "sneezing": "Sneeze",
    }
    for label, name in right.items():
        assert max([*right.values(), "Rain"], key=lambda other: likeness(label, other)) == name
    assert likeness("Rain", "rain") == pytest.approx(1)
    assert likeness("xyz", "Rain") < 0.1
    assert likeness("", "Rain") == likeness("!", "?") == 0


def test_proposals_come_from_names_from_the_model_or_from_both(task: Path, model: None) -> None:
    by_name, by_model, both = (
        {one.label: one for one in suggestions.suggest_labels(str(task), by)} for by in ("names", "model", "both")
    )
    assert by_name["dog_bark"].proposals[0].label == "Bark"
    assert by_name["dog_bark"].proposals[0].by_model is None
    assert by_model["dog_bark"].proposals[0].label == "Rain"
    assert both["sea_waves"].proposals[0].label == "Waves, surf"
    assert all(len(one.proposals) == 3 and len(one.examples) == 3 for one in both.values())
    assert all("sea_waves" in file for file in both["sea_waves"].examples)
    scores = [proposal.score for proposal in both["dog_bark"].proposals]
    assert scores == sorted(scores, reverse=True)


def test_a_local_label_keeps_its_own_name_whatever_the_section_says(task: Path, model: None) -> None:
    record(task.parent / "l" / "rain" / "0.npy", 0)
    record(task.parent / "l" / "rain" / "1.npy", 1)
    section = 'map = { dog_bark = ["Bark"], sea_waves = ["Rain"] }\nparents = { Bark = ["Rain"] }\n'
    for text in (TASK + section, TASK.replace("[labels]\n", "")):
        task.write_text(text)
        found = {one.label: one.proposals[0].label for one in suggestions.suggest_labels(str(task), "names")}
        assert found == {"dog_bark": "Bark", "sea_waves": "Waves, surf", "rain": "Rain"}


def test_what_is_written_is_a_map_that_the_task_takes(
    task: Path, model: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = task.with_name("labels.tsv")
    assert call(["labels", "suggest", str(task), "--by", "names", "--out", str(out)]) == 0
    assert "edit it" in capsys.readouterr().out
    assert task.read_text() == TASK  # never applied silently
    assert out.read_text().count("#   ") == 6
    task.write_text(TASK + 'map = "labels.tsv"\n')
    assert open_task(str(task)).labels == ("Bark", "Rain", "Waves, surf")
    assert call(["labels", "suggest", str(task), "--by", "names", "--out", str(out)]) == 1
    assert "exists" in capsys.readouterr().err


def test_the_samples_that_the_model_contradicts_most_come_first(
    task: Path, model: None, capsys: pytest.CaptureFixture[str]
) -> None:
    task.write_text(TASK + 'map = { dog_bark = ["Bark"], sea_waves = ["Waves, surf"] }\n')
    assert call(["labels", "check", str(task), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["contradictions"]
    assert (found[0]["label"], found[0]["probability"], found[0]["instead"]) == ("Bark", 0.1, "Rain")
    assert [one["probability"] for one in found] == sorted(one["probability"] for one in found)
    assert call(["labels", "check", str(task)]) == 0
    assert "Bark 10 %; the model finds Rain 80 %" in capsys.readouterr().out.splitlines()[0]


def test_an_unmapped_label_leads_to_the_suggestions(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["labels", "check", str(task)]) == 1
    assert "`tuner labels suggest` proposes a map" in capsys.readouterr().err
    assert call(["labels", "suggest", "digits"]) == 1
    assert "labels are mapped in a task file" in capsys.readouterr().err


@pytest.mark.slow
def test_the_models_probabilities_are_means_over_the_windows_of_a_file(task: Path) -> None:
    opened_task = task_from_toml(task, mapped=False)
    session = opened(TorchBackend(), opened_task)
    rows = session.ask("probabilities", partition="local.train")
    files, places = wholes(opened_task.local.train)
    assert np.array(rows).shape == (len(files), 3)
    assert ((np.array(rows) > 0) & (np.array(rows) < 1)).all()
    assert len(places) == 2 * len(files)


def test_numbers_are_no_labels_to_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("suggest", "check"):
        assert call(["labels", command, str(write_task(tmp_path))]) == 1
        assert "has no labels" in capsys.readouterr().err
