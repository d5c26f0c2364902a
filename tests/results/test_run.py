"""A run shows itself: as a line, as a table of HTML, and as a table of pandas."""

import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tuner
from tuner.errors import TunerError

OLD = Path(__file__).parent.parent / "fixtures"
NAMES = ("digits", "exits", "signals")


class Table(HTMLParser):
    """The cells of a table, and every tag that was opened and not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data


def test_a_run_and_its_records_are_a_line_each() -> None:
    run = tuner.Run.open(OLD / "digits" / "run")
    line = repr(run)
    assert line.startswith(f"<Run {str(run.folder)!r} of digits: ")
    assert f"front of {len(run.front)}, best {run.best}: local_accuracy 9" in line
    assert "\n" not in line
    assert len(line) < 300
    for record in run.records:
        line = repr(record)
        assert line.startswith(f"<Trial {record.trial}: {record.state},")
        assert "\n" not in line
        assert len(line) < 500
        shown = replace(record, reason="<b>")._repr_html_()
        assert len(Table(shown).open) == 0
        assert "&lt;b&gt;" in shown


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_the_front_as_a_table(name: str) -> None:
    run = tuner.Run.open(OLD / name / "run")
    table = Table(run._repr_html_())
    assert table.open == []
    header, untouched, *members = table.rows
    assert header == ["trial", *(one.title for one in run.columns), "plan"]
    assert {len(row) for row in table.rows} == {len(header)}
    assert untouched[0] == "untouched"
    assert [row[0].removeprefix("→ ") for row in members] == list(map(str, run.shortlist))
    assert [row[0] for row in members if row[0].startswith("→")] == [f"→ {run.best}"]
    for trial, row in zip(run.shortlist, members, strict=True):
        assert row[1:-1] == [run.text_of(one, run.record(trial).values) for one in run.columns]
        assert row[-1].startswith("train ")


def test_rows_of_a_table_are_as_long_as_its_header_where_solved_heads_have_a_score_of_all_samples() -> None:
    run = tuner.Run.open(OLD / "digits" / "run")
    members = [replace(one, values=one.values | {"local_loo_accuracy": 0.9}) for one in run.records]
    rows = Table(replace(run, records=tuple(members))._repr_html_()).rows
    assert "leave-one-out" in " ".join(rows[0])
    assert {len(row) for row in rows} == {len(rows[0])}


@pytest.mark.parametrize("name", NAMES)
def test_the_frame_has_a_row_for_each_trial_and_a_column_for_each_number(name: str) -> None:
    pytest.importorskip("pandas")
    run = tuner.Run.open(OLD / name / "run")
    table = run.frame()
    assert list(table.index) == [record.trial for record in run.records]
    assert list(table.index[table["on_front"]]) == list(run.front)
    assert list(table.index[table["best"]]) == [run.best]
    for record in run.records:
        row = table.loc[record.trial]
        assert row["state"] == record.state
        assert {value: row[value] for value in record.values} == record.values
        assert {knob: row[f"knob.{knob}"] for knob in record.knobs} == record.knobs
        assert record.plan is not None
        assert row["plan.split"] == record.plan.split
        assert row["plan.recipe.learning_rate"] == record.plan.recipe.learning_rate


def test_without_pandas_the_error_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TunerError, match=r"this needs pandas, which is not installed: pip install .*\[pandas\]"):
        tuner.Run.open(OLD / "digits" / "run").frame()
