"""Files of classes: their order, rows of the head and labels."""

from pathlib import Path

import pytest

from tests.task.conftest import GLOBAL, Load
from tuner.errors import TaskError

WITH_CLASSES = {**GLOBAL, "global.classes": "classes.tsv"}


def test_a_classes_file_gives_order_rows_and_labels(images: Path, load: Load) -> None:
    (images / "classes.tsv").write_text('id\tmodel_index\tname\ndog\t9\t"Hound", dog\ncow\t1\tcow\ncat\t4\tTabby\n')
    task = load(WITH_CLASSES)
    assert task.labels == ('"Hound", dog', "Tabby", "hat")
    assert task.head_rows == (9, 4)
    assert task.local_labels == (0, 2)
    assert task.global_ is not None
    assert task.global_.train.labels.tolist() == [1] * 4 + [0] * 4


@pytest.mark.parametrize(
    ("rows", "labels", "local"),
    [
        ("dog\t0\tDog\ncat\t1\tHAT\n", ("Dog", "HAT"), ["Dog", "HAT"]),  # in any case
        ("cat\t0\tDOG\ndog\t1\tdog\n", ("DOG", "dog", "hat"), ["dog", "hat"]),  # an exact name goes first
        ("cat\t0\tpet\ndog\t1\tpet\n", ("pet (cat)", "pet (dog)", "hat"), []),  # twice: told apart
    ],
)
def test_a_local_class_shares_a_row_by_its_label(
    rows: str, labels: tuple[str, ...], local: list[str], images: Path, load: Load
) -> None:
    (images / "classes.tsv").write_text(f"id\tindex\tname\n{rows}")
    task = load(WITH_CLASSES)
    assert task.labels == labels
    assert not local or [task.labels[row] for row in task.local_labels] == local


def test_columns_may_be_left_out_and_commas_used_in_csv(images: Path, load: Load) -> None:
    (images / "classes.csv").write_text("id\nowl\ndog\ncat\n")
    task = load({**GLOBAL, "global.classes": "classes.csv"})
    assert (task.labels, task.head_rows) == (("dog", "cat", "hat"), (1, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id\tindex\tname\ncats\t0\tcat\ndog\t1\tdog\n",
            r"lacks the class 'cat' of .*g/train \(did you mean 'cats'\?\)",
        ),
        (
            "id\tindex\ncat\tfirst\n",
            r"classes\.tsv:2: the row in the model's head must be an integer from 0, got 'first'",
        ),
        ("id\tindex\ncat\n", r"classes\.tsv:2: a row must have 2 cells like the header, got 1"),
        ("id\tindex\ncat\t1\ndog\t1\n", r"each index may occur once, got 1 2 times"),
        ("id\tindex\ncat\t1\ncat\t2\n", r"each class may occur once, got 'cat' 2 times"),
        ("", r"must have a header and a row per class, got 0 lines"),
    ],
)
def test_a_mistake_in_a_classes_file_is_reported(images: Path, load: Load, text: str, message: str) -> None:
    (images / "classes.tsv").write_text(text)
    with pytest.raises(TaskError, match=message):
        load(WITH_CLASSES)


def test_a_missing_classes_file_is_named(images: Path, load: Load) -> None:
    with pytest.raises(TaskError, match=r"classes\.tsv: cannot be read \(No such file"):
        load(WITH_CLASSES)
