"""Labels that differ between local data and model: mapped, new, or refused by name; hierarchies close upward."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.task.conftest import Load, draw
from tuner.errors import TaskError
from tuner.task import Task

PARENTS = {"Bark": ["Dog"], "Dog": ["Animal"], "Cat": ["Animal"]}
BASE: dict[str, Any] = {
    "model.factory": "m:build",
    "global.kind": "images",
    "global.train": "g",
    "local.kind": "images",
    "local.train": "l",
    "input.size": 6,
    "input.mean": [0.5],
    "input.std": [0.5],
    "loss.kind": "multi-label",
    "labels.map": {"woof": ["Bark"], "tabby": ["Cat"]},
    "labels.new": ["bell"],
    "labels.parents": PARENTS,
}


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """The model knows Bark and Cat; the user has woof, tabby, bell and, by the model's own name, cat."""
    for at, (place, names) in enumerate((("g", ("Bark", "Cat", "Rain")), ("l", ("woof", "tabby", "bell", "cat")))):
        for number, name in enumerate(names):
            for copy in range(4):
                draw(tmp_path / place / name / f"{copy}.png", (40 * number, 60 * copy, 100 * at))
    return tmp_path


def labels_of(task: Task, domain: str, file: str) -> set[str]:
    parts = dict(task.partitions())
    for samples in (parts[f"{domain}.train"], parts[f"{domain}.val"]):
        for at in range(len(samples)):
            if file in samples.name(at):
                return {task.labels[row] for row in np.flatnonzero(samples.labels[at])}
    raise AssertionError(file)


def test_local_labels_are_mapped_and_all_labels_close_upward(animals: Path, load: Load) -> None:
    task = load(None, BASE)
    assert task.labels == ("Bark", "Cat", "Rain", "Animal", "Dog", "bell")  # the model's own keep their rows
    assert task.head_rows == (0, 1, 2, 3, 4)
    assert labels_of(task, "global", "Bark/") == {"Bark", "Dog", "Animal"}
    assert labels_of(task, "local", "woof/") == {"Bark", "Dog", "Animal"}
    assert labels_of(task, "local", "tabby/") == labels_of(task, "local", "cat/") == {"Cat", "Animal"}
    assert labels_of(task, "local", "bell/") == {"bell"}
    assert task.local_labels == (0, 1, 3, 4, 5)
    assert dict(task.label_map) == {  # what bundles know of it; Animal, Rain and bell stand for themselves
        "Bark": ("Animal", "Bark", "Dog"),
        "Cat": ("Animal", "Cat"),
        "Dog": ("Animal", "Dog"),
        "cat": ("Animal", "Cat"),
        "tabby": ("Animal", "Cat"),
        "woof": ("Animal", "Bark", "Dog"),
    }


def test_without_the_section_nothing_is_mapped(animals: Path, load: Load) -> None:
    task = load(None, {key: value for key, value in BASE.items() if not key.startswith("labels.")})
    assert task.labels == ("Bark", "Cat", "Rain", "bell", "tabby", "woof")


def test_tables_may_be_files_and_a_classes_file_gives_names_and_rows(animals: Path, load: Load) -> None:
    (animals / "map.tsv").write_text("# edited\nwoof\tbarking\ntabby\tCat\n\n")
    (animals / "parents.tsv").write_text("barking\tDog\nDog\tAnimal\nCat\tAnimal|Pet\n")
    rows = "class\tindex\tname\nBark\t7\tbarking\nCat\t3\tCat\nRain\t1\tRain\n"
    (animals / "classes.tsv").write_text(rows + "Animal\t0\tAnimal\nDog\t2\tDog\nPet\t4\tPet\nUnused\t9\tUnused\n")
    changes = {"labels.map": "map.tsv", "labels.parents": "parents.tsv", "global.classes": "classes.tsv"}
    task = load(changes, BASE)
    assert task.labels == ("barking", "Cat", "Rain", "Animal", "Dog", "Pet", "bell")
    assert task.head_rows == (7, 3, 1, 0, 2, 4)
    assert labels_of(task, "local", "tabby/") == {"Cat", "Animal", "Pet"}


def test_a_single_label_task_maps_each_label_to_one(animals: Path, load: Load) -> None:
    single = {"loss.kind": "single-label", "labels.parents": None}
    task = load(single, BASE)
    assert task.labels == ("Bark", "Cat", "Rain", "bell")
    assert set(task.local.train.labels.tolist()) == {0, 1, 3}
    with pytest.raises(TaskError, match="must map 'woof' to one label"):
        load({**single, "labels.map": {"woof": ["Bark", "Cat"]}}, BASE)
    with pytest.raises(TaskError, match="gives a sample several labels"):
        load({"loss.kind": "single-label"}, BASE)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labels.map": {"tabby": ["Cat"]}}, r"the local label 'woof' is not one of the model's"),
        ({"labels.map": {"woof": ["Brak"], "tabby": ["Cat"]}}, r"to 'Brak', which is no label .*did you mean 'Bark'"),
        ({"labels.map": {"wof": ["Bark"]}}, r"labels.map has 'wof', of which there is no local sample .*'woof'"),
        ({"labels.map": {"woof": []}}, r"must map 'woof' to at least one label"),
        ({"labels.new": ["bell", "tabby"]}, r"'tabby' is in labels.map and in labels.new"),
        ({"labels.new": ["bells"]}, r"labels.new has 'bells', of which there is no local sample .*'bell'"),
        ({"labels.parents": {"Brk": ["Dog"]}}, r"names 'Brk', which is neither .*'Bark'"),
        ({"labels.parents": {"woof": ["Dog"]}}, r"names 'woof', which is neither a label of the model nor a new one"),
        ({"labels.parents": {"Bark": ["Dog"], "Dog": ["Bark"]}}, r"leads from 'Bark' back to itself"),
        ({"labels.map": ""}, r"labels.map must be a table, or the name of a file, got an empty name"),
        ({"local.labels": "none"}, r"\[labels\] maps local labels, of which there are none"),
        ({"labels.parents": {"bell": ["Thing"]}}, r"leads from 'bell' to 'Thing', which no global sample has"),
        ({"global.kind": None, "global.train": None, "global": None}, r"global.kind is missing|maps local labels"),
        ({"labels.map": "none.tsv"}, r"none.tsv: cannot be read"),
        ({"labels.maps": {}}, r"unknown key 'labels.maps' \(did you mean 'map'\?\)"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(
    change: dict[str, Any], reason: str, animals: Path, load: Load
) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        load(change, BASE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a\n", "a tab, and labels"), ("a\tb\na\tc\n", "may occur once"), ("a" * 200_000, "a tab, and labels")],
)
def test_a_damaged_file_of_labels_is_one_line(text: str, reason: str, animals: Path, load: Load) -> None:
    (animals / "map.tsv").write_text(text)
    with pytest.raises(TaskError, match=reason):
        load({"labels.map": "map.tsv"}, BASE)


def test_the_rows_of_the_given_head_keep_their_labels(tmp_path: Path, load: Load) -> None:
    np.savez(tmp_path / "g.npz", x=np.zeros((36, 6, 6, 1), np.uint8), y=np.arange(36) % 12)
    arrays = {"global.kind": "arrays", "global.train": "g.npz", "local.kind": "arrays", "local.train": "g.npz"}
    values = {key: value for key, value in BASE.items() if not key.startswith("labels.")} | arrays
    task = load({"labels.map": {}, "loss.kind": "single-label", "input.size": None}, values)
    assert task.labels == tuple(map(str, range(12)))  # in alphabetical order, 10 and 11 would take rows 2 and 3


def test_a_new_label_that_is_the_models_but_for_case_is_refused(animals: Path, load: Load) -> None:
    with pytest.raises(TaskError, match=r"labels.new has 'cat', which is the model's 'Cat' but for the case"):
        load({"labels.new": ["bell", "cat"]}, BASE)
