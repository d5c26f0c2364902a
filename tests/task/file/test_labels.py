"""Files of classes: their order, rows of the head and labels."""

from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
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
        ("tench\ncat\ndog\n", r"classes\.tsv:1: the first line must be the title .* got 'tench': write class as"),
        ("cat\tanimal\ndog\tanimal\n", r"classes\.tsv:1: the first line must be the titles .* got the class 'cat'"),
        ("cat\ndog\ncat\n", r"each class may occur once, got 'cat' 2 times"),
        ("cat\t1\ndog\t1\n", r"each index may occur once, got 1 2 times"),
    ],
)
def test_a_mistake_in_a_classes_file_is_reported(images: Path, load: Load, text: str, message: str) -> None:
    (images / "classes.tsv").write_text(text)
    with pytest.raises(TaskError, match=message):
        load(WITH_CLASSES)


def test_a_missing_classes_file_is_named(images: Path, load: Load) -> None:
    with pytest.raises(TaskError, match=r"classes\.tsv: cannot be read \(No such file"):
        load(WITH_CLASSES)


@pytest.mark.parametrize(
    ("text", "labels", "rows"),
    [
        ("cat\ndog\n", ("cat", "dog"), (0, 1)),
        ("dog\ncat\n", ("dog", "cat"), (0, 1)),
        ("dog\nowl\ncat\n\n", ("dog", "cat"), (0, 2)),
        ("cat\t3\ndog\t1\n", ("cat", "dog"), (3, 1)),
        ("3\tcat\n1\tdog\n", ("cat", "dog"), (3, 1)),
        ("class\ncat\ndog\n", ("cat", "dog"), (0, 1)),
        ("Label\tIndex\ncat\t5\ndog\t2\n", ("cat", "dog"), (5, 2)),
        ("\ufeffdog\ncat\n", ("dog", "cat"), (0, 1)),
        ("dog\r\ncat\r\n", ("dog", "cat"), (0, 1)),
    ],
)
def test_no_line_of_a_list_without_a_header_is_lost(
    images: Path, load: Load, text: str, labels: tuple[str, ...], rows: tuple[int, ...]
) -> None:
    (images / "classes.tsv").write_text(text, newline="")
    task = load(WITH_CLASSES)
    assert (task.labels[: len(rows)], task.head_rows) == (labels, rows)
    assert not task.cautions


@pytest.mark.parametrize(
    ("names", "rows", "caution"),
    [
        ([str(number) for number in range(12)], tuple(range(12)), "note: the global classes are named by numbers"),
        (["0", "1", "2"], (0, 1, 2), ""),
        (["3", "7"], (3, 7), "note: the global classes are named by numbers"),
        (["00", "01", "02", "10"], (0, 1, 2, 10), "note: the global classes are named by numbers"),
        (["1", "01"], (1, 0), "warning: global.classes is missing, so '01'"),
        (["2", "10", "x"], (1, 0, 2), "warning: global.classes is missing, so '10', the first global class by name"),
        (["b", "a"], (1, 0), "warning: global.classes is missing, so 'a'"),
    ],
)
def test_rows_of_global_folders_without_a_classes_file(
    images: Path, load: Load, names: list[str], rows: tuple[int, ...], caution: str
) -> None:
    for name in names:
        for part in ("train", "val"):
            (images / "n" / part / name).mkdir(parents=True)
            copy(images / "g/train/cat/0.png", images / "n" / part / name)
    task = load({**GLOBAL, "global.train": "n/train", "global.val": "n/val"})
    assert dict(zip(task.labels, task.head_rows, strict=False)) == dict(zip(names, rows, strict=True))
    assert caution in "".join(task.cautions)
    assert bool(caution) == bool(task.cautions)


@pytest.mark.parametrize(("own", "said"), [(None, True), (["cat", "dog", "hat"], False)])
def test_local_labels_that_are_matched_by_number_get_a_note(
    tmp_path: Path, load: Load, own: list[str] | None, *, said: bool
) -> None:
    x, y = np.zeros((6, 1, 4, 4), np.float32), np.arange(6) % 3
    names: dict[str, Any] = {} if own is None else {"classes": np.array(own)}
    np.savez(tmp_path / "g.npz", x=x, y=y, **names)
    np.savez(tmp_path / "l.npz", x=x, y=y, **names)
    kind = {"global.kind": "arrays", "local.kind": "arrays", "input.size": None, "input.mean": None, "input.std": None}
    task = load({**kind, "global.train": "g.npz", "local.train": "l.npz", "local.val": None})
    assert ("note: the local classes 0, 1, 2 are numbers, and count as the global" in "".join(task.cautions)) == said
