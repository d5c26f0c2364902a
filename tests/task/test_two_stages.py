"""The examples of two stages: what came first is global, what comes now is local, and neither holds the other's."""

import os
from pathlib import Path

import numpy as np
import pytest

from tuner.task import open_task

pytestmark = pytest.mark.data

EXAMPLES = Path(__file__).parents[2] / "examples" / "continual"
DATA = Path(os.environ.get("TUNER_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def _data(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / "README.md").is_file():
        pytest.skip(f"the real data is not at {DATA}: set TUNER_DATA to its folder")
    monkeypatch.setenv("TUNER_DATA", str(DATA))


def test_new_digits_come_after_five_others() -> None:
    task = open_task(f"{EXAMPLES / 'new_digits.py'}:task")
    assert task.global_ is not None
    assert {int(label) for label in task.global_.train.labels} == set(range(5))
    assert {int(label) for label in task.local.train.labels} == set(range(5, 10)) == set(task.local_labels)
    assert task.head_rows == tuple(range(5))
    partitions = [samples for domain in (task.global_, task.local) for _, samples in domain.partitions()]
    assert [len(samples) for samples in partitions] == [3000, 1000, 1000] * 2
    names = [samples.name(index) for samples in partitions for index in range(len(samples))]
    assert len(set(names)) == len(names)


def test_a_new_person_makes_the_same_gestures() -> None:
    task = open_task(str(EXAMPLES / "new_person.toml"))
    assert task.global_ is not None
    assert len(task.labels) == 7
    assert np.unique(task.local.train.labels).tolist() == np.unique(task.global_.train.labels).tolist()
    people = [
        {part.name(index).partition("#eval/")[2].partition("/")[0] for index in range(len(part))}
        for part in (task.global_.train, task.global_.val, task.local.train, task.local.val)
    ]
    assert people == [{"female0"}, {"female0"}, {"male0"}, {"male0"}]
