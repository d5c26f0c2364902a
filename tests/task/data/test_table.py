"""Tables in CSV files: what is refused, and that columns are found by their names."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.bundle.info import _input
from tuner.bundle.table import Table as Section
from tuner.errors import TaskError
from tuner.targets import targets_of
from tuner.task.data.entry import EntrySource
from tuner.task.data.npz import sessions_key
from tuner.task.data.samples import Subset
from tuner.task.data.table import Table, label_column, read_table, split_column, stretches
from tuner.task.inputs import input_kind
from tuner.task.spec import InputSpec

ROWS = "q,r,kind\n1,2,a\n3,4,b\n5,6,a\n7,8,b\n"


def source(path: Path, kind: str = "arrays", *, labelled: bool = True) -> EntrySource:
    return EntrySource(path, "train", InputSpec(kind), targets_of("single-label"), labelled)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_table_without_names_of_columns_is_refused(tmp_path: Path) -> None:
    iris = written(tmp_path / "iris.csv", "5.1,3.5,setosa\n4.9,3.0,setosa\n7.0,3.2,versicolor\n")
    rule = (
        r"iris\.csv: the first row must name the columns, but seems to be a sample \(5\.1,3\.5,setosa\): write a line"
    )
    for ask in (lambda: label_column(iris, needed=True), lambda: read_table(iris, "setosa")):
        with pytest.raises(TaskError, match=rule):
            ask()
    numbered = written(tmp_path / "numbered.csv", "0,1,kind\n5.1,3.5,a\n4.9,3.0,b\n")  # as pandas names columns
    assert read_table(numbered, "kind").labels == ["a", "b"]


@pytest.mark.parametrize("kind", ["arrays", "signals"])
def test_a_row_without_a_label_is_refused(tmp_path: Path, kind: str) -> None:
    place = written(tmp_path / "t.csv", "q,label\n1,a\n2, \n3,b\n")
    with pytest.raises(TaskError, match=r"t\.csv: row 3: a sample .* must have one label, got '': name its class"):
        input_kind(kind).entry(source(place, kind))


@pytest.mark.parametrize("kind", ["arrays", "signals"])
def test_columns_are_found_by_the_names_of_the_training_table(tmp_path: Path, kind: str) -> None:
    samples, place = input_kind(kind), written(tmp_path / "t.csv", ROWS)
    entry = samples.entry(source(Path(f"{place}#kind"), kind))
    train = Subset(entry.build(entry.targets), [0, 1])
    spec = samples.standardised(InputSpec(kind), {"local.train": train})
    assert spec.columns == ("q", "r")
    assert _input(spec.to_dict(), Section(spec.to_dict(), ""), "") == spec, "a bundle keeps them"
    assert "columns" not in InputSpec(kind).to_dict(), "where there are none, all is as it was"
    other = written(tmp_path / "other.csv", "kind,r,q\na,2,1\n")  # in another order, and with a label
    np.testing.assert_array_equal(samples.read(other, spec).flatten(), [1, 2])
    with pytest.raises(TaskError, match=r"column 'q' is missing, which the model was trained with"):
        samples.read(written(tmp_path / "less.csv", "r,s\n2,1\n"), spec)
    val = Subset(train, [0])
    val.columns = ("r", "q")
    with pytest.raises(TaskError, match=r"column 1 .* is 'q' in local\.train and 'r' in local\.val: write them"):
        samples.standardised(replace(spec, columns=()), {"local.train": train, "local.val": val})


def test_stretches_of_a_long_table() -> None:
    labels = ["ab"[at % 2] for at in range(40_000)] + ["c"] * 10
    table = Table((), np.zeros((len(labels), 1), np.float32), labels, [""] * len(labels), is_timed=True, first=2)
    found = stretches(table)
    assert found[-5:] == [(begin, begin + 2) for begin in range(40_000, 40_010, 2)], "the only one is divided"
    assert len(found) == 40_005


def test_names_in_files_of_data(tmp_path: Path) -> None:
    assert split_column(tmp_path / "run#2" / "t.csv#kind") == (tmp_path / "run#2" / "t.csv", "kind")
    assert split_column(Path("t.csv")) == (Path("t.csv"), "")
    assert [sessions_key(key) for key in ("x_train", "X", "train_images", "data_train")] == [
        "session_train",
        "session",
        "train_session",
        "session_train",
    ]
    np.save(tmp_path / "x_new.npy", np.zeros((3, 2)))
    assert len(input_kind("arrays").entry(source(tmp_path / "x_new.npy", labelled=False)).targets) == 3
    with pytest.raises(TaskError, match="its labels must be next to it"):
        input_kind("arrays").entry(source(tmp_path / "x_new.npy"))
