"""The study on disk: cut anywhere, it opens, and no finished trial is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.knobs import Choice, Numeric
from tuner.results.objectives import OBJECTIVES
from tuner.results.records import TrialRecord
from tuner.search.config import Limits
from tuner.search.journal import (
    RECORD,
    STARTUP_TRIALS,
    finished,
    next_trial,
    open_study,
    seeded,
    sound,
    suggesting,
    trim,
)
from tuner.search.study import Study

DIRECTIONS = [one.optuna_direction for one in OBJECTIVES]
Begin = Callable[..., Study]


@pytest.fixture
def journal(begin: Begin, tmp_path: Path) -> bytes:
    """Six trials in a deterministic study."""
    begin().run()
    return (tmp_path / "journal.log").read_bytes()


def records_in(content: bytes) -> list[int]:
    entries = [json.loads(line) for line in content.splitlines()]
    return [entry["user_attr"][RECORD]["trial"] for entry in entries if RECORD in entry.get("user_attr", {})]


def test_a_cut_at_any_byte_leaves_every_whole_line_and_nothing_else(journal: bytes) -> None:
    line_end = 0
    for cut in range(len(journal) + 1):
        if cut and journal[cut - 1 : cut] == b"\n":
            line_end = cut
        assert sound(journal[:cut]) == line_end


def test_optuna_opens_what_is_left_with_every_finished_trial(journal: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    lines = journal.splitlines(keepends=True)
    assert records_in(journal) == [0, 1, 2, 3, 4, 5]
    for count in range(len(lines) + 1):
        torn = lines[count][: len(lines[count]) // 2] if count < len(lines) else b""
        path.write_bytes(b"".join(lines[:count]) + torn)
        study = open_study(path, DIRECTIONS)
        assert [trial.number for trial in finished(study)] == records_in(b"".join(lines[:count]))


def test_a_tail_of_zeros_or_of_half_lines_is_cut_off(journal: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    for tail in (b"\0" * 512, b'{"op_code":5,\n{"op', b"\0" * 512 + b"\n"):
        path.write_bytes(journal + tail)
        assert trim(path) == len(tail)
        assert path.read_bytes() == journal
    assert trim(tmp_path / "none.log") == 0


def outcomes(study: Study) -> list[tuple[object, ...]]:
    return [(one.trial, one.state, one.plan and one.plan.key(), one.values, one.same_as) for one in study.records]


def resume_after_every_line(begin: Begin, path: Path, first: int, limits: Limits) -> int:
    """Cut a study's journal after every line from `first` on, resume, and return how often it was."""
    wanted = outcomes(begin(limits))
    lines = (path.parent / "journal.log").read_bytes().splitlines(keepends=True)
    for count in range(first, len(lines)):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:9])
        study = begin(limits, path=path)
        study.run()
        assert outcomes(study) == wanted, f"cut after line {count}"
    return len(lines) - first


@pytest.mark.slow
def test_a_study_cut_at_any_line_and_resumed_is_the_undisturbed_one(begin: Begin, tmp_path: Path) -> None:
    limits = Limits(trials=3)
    begin(limits).run()
    assert resume_after_every_line(begin, tmp_path / "cut.log", 0, limits) > 30


@pytest.mark.slow
def test_so_is_one_that_is_cut_where_the_sampler_has_learned(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    begin(Limits(trials=STARTUP_TRIALS + 1)).run()
    before = len(path.read_bytes().splitlines())
    limits = Limits(trials=STARTUP_TRIALS + 2)
    begin(limits).run()
    assert resume_after_every_line(begin, tmp_path / "cut.log", before, limits) > 5


def test_a_running_trial_is_taken_up_with_the_values_it_had(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = open_study(path, DIRECTIONS)
    knobs = (Numeric("a.x", 0.0, 1.0, whole=False), Numeric("a.n", 1, 100, whole=True), Choice("a.c", ("p", "q")))
    source = suggesting(next_trial(study, "tpe", 1))
    had = [source(knob) for knob in knobs[:2]]
    taken = next_trial(open_study(path, DIRECTIONS), "tpe", 1)
    assert taken.number == 0
    again = suggesting(taken)
    assert [again(knob) for knob in knobs[:2]] == had
    assert again(knobs[2]) in {"p", "q"}


def test_a_record_that_was_written_before_a_kill_is_told_to_optuna(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    begin().run()
    lines = path.read_bytes().splitlines(keepends=True)
    at = max(index for index, line in enumerate(lines) if b'"record"' in line)
    path.write_bytes(b"".join(lines[: at + 1]))
    study = begin()
    assert [record.trial for record in study.records] == [0, 1, 2, 3, 4, 5]
    told = open_study(path, DIRECTIONS).get_trials()
    assert all(trial.state.is_finished() for trial in told)
    assert [trial.values for trial in told] == [
        [record.values[name] for name in ("local_accuracy", "global_accuracy", "train_seconds", "peak_bytes")]
        for record in study.records
    ]


def test_seeds_are_stable_across_versions_and_differ_by_part() -> None:
    assert seeded(0, 1) == 3_621_678_275
    assert len({seeded(0, 1), seeded(1, 0), seeded(0, "1/2"), seeded(0), seeded(0, 2)}) == 5
    assert 0 <= seeded(7, "a plan's key") < 2**32


def test_fixed_knobs_are_not_asked_for(tmp_path: Path) -> None:
    trial = next_trial(open_study(tmp_path / "journal.log", DIRECTIONS), "random", 0)
    source = suggesting(trial)
    assert source(Choice("a.c", ("only",))) == "only"
    assert source(Numeric("a.n", 3, 3, whole=True)) == 3
    assert trial.params == {}


def test_records_read_back_equal(begin: Begin) -> None:
    study = begin()
    study.run()
    base = study.records[0].plan
    assert base is not None
    for record in study.records:
        assert TrialRecord.from_dict(json.loads(json.dumps(record.to_dict())), base) == record
