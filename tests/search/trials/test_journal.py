"""The study on disk: cut anywhere, it opens, no finished trial is lost, and trials share what they hold."""

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import TrialState

from tests.search.conftest import Begin
from tuner.plugin.knobs import Choice, Numeric
from tuner.results.folder import JOURNAL, TRIALS, read_records
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.space import SAMPLERS
from tuner.search.study import Study
from tuner.search.trials.compact import JournalFile, add_copies
from tuner.search.trials.journal import (
    NAME,
    PROMOTED,
    next_trial,
    open_study,
    optuna_values,
    sound,
    trim,
)
from tuner.search.trials.samplers import STARTUP_TRIALS
from tuner.search.trials.seeds import seeded

DIRECTIONS = [one.optuna_direction for one in OBJECTIVES]
FEW_KNOBS = {
    "gdm.weight": 1.0,
    "gdm.balance": False,
    "cache.by": "cache",
    "cache.augment": 0.0,
    "cache.bits": 8,
    "recipe.learning_rate": 1e-3,
    "recipe.batch_size": 16,
    "recipe.optimiser": "sgd",
    "recipe.weight_decay": 0.0,
    "recipe.schedule": "cosine",
    "recipe.patience": 0,
    "recipe.freeze_bn": True,
    "recipe.micro_batches": 1,
    "recipe.label_smoothing": 0.0,
    "recipe.solve_again": False,
}


@pytest.fixture
def journal(begin: Begin, tmp_path: Path) -> bytes:
    """Six trials in a deterministic study."""
    begin().run()
    return (tmp_path / "journal.log").read_bytes()


def test_a_cut_at_any_byte_leaves_every_whole_line_and_nothing_else(journal: bytes) -> None:
    line_end = 0
    for cut in range(len(journal) + 1):
        if cut and journal[cut - 1 : cut] == b"\n":
            line_end = cut
        assert sound(journal[:cut]) == line_end


def test_optuna_opens_what_is_left(journal: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    lines = journal.splitlines(keepends=True)
    for count in range(len(lines) + 1):
        torn = lines[count][: len(lines[count]) // 2] if count < len(lines) else b""
        path.write_bytes(b"".join(lines[:count]) + torn)
        open_study(path, DIRECTIONS)
        assert path.read_bytes().startswith(b"".join(lines[:count]))
    for tail in (b"\0" * 512, b'{"op_code":5,\n{"op', b"\0" * 512 + b"\n"):
        path.write_bytes(journal + tail)
        trim(path)
        assert path.read_bytes() == journal
    trim(tmp_path / "none.log")


def test_a_cut_at_any_byte_of_the_records_loses_the_torn_one_alone(
    begin: Begin, journal: bytes, tmp_path: Path
) -> None:
    study = begin()
    template = study.records[0].plan
    assert template is not None
    content = (tmp_path / TRIALS).read_bytes()
    ends = [at + 1 for at, letter in enumerate(content) if letter == ord("\n")]
    assert len(ends) == 6
    (folder := tmp_path / "cut").mkdir()
    for cut in range(ends[0] - 3, len(content) + 1, 7):
        (folder / TRIALS).write_bytes(content[:cut])
        whole = sum(end <= cut or end == cut + 1 for end in ends)  # a line without its end is whole, too
        assert [record.trial for record in read_records(folder, template)] == list(range(whole))


def outcomes(study: Study) -> list[tuple[object, ...]]:
    return [
        (record.trial, record.state, record.plan and record.plan.key(), record.values, record.same_as)
        for record in study.records
    ]


def timeline(folder: Path) -> list[tuple[str, bytes]]:
    """Return the lines of a study's two files in the order they were written: a record before `study.tell`."""
    journal = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    records = iter((folder / TRIALS).read_bytes().splitlines(keepends=True))
    lines: list[tuple[str, bytes]] = []
    ended: set[int] = set()
    for line in journal:
        entry = json.loads(line)
        ends = entry.get("state") in {1, 2, 3} or "constraint" in json.dumps(entry)
        if ends and entry["trial_id"] not in ended:
            ended.add(entry["trial_id"])
            lines.append((TRIALS, next(records)))
        lines.append((JOURNAL, line))
    assert next(records, None) is None
    return lines


def resume_after_every_line(begin: Begin, folder: Path, first: int, limits: Budget) -> int:
    """Cut a study after every line from `first` on, resume, and return how often it was."""
    wanted = outcomes(begin(limits))
    lines = timeline(folder)
    for count in range(first, len(lines)):
        for name in (JOURNAL, TRIALS):
            content = b"".join(line for where, line in lines[:count] if where == name)
            torn = lines[count][1][:9] if lines[count][0] == name else b""
            (folder / name).write_bytes(content + torn)
        study = begin(limits)
        study.run()
        assert outcomes(study) == wanted, f"cut after line {count}"
    return len(lines) - first


@pytest.mark.slow
def test_a_study_cut_at_any_line_and_resumed_is_the_undisturbed_one(begin: Begin, tmp_path: Path) -> None:
    limits = Budget(trials=2)
    begin(limits).run()
    assert resume_after_every_line(begin, tmp_path, 0, limits) > 20


@pytest.mark.slow
def test_so_is_one_that_is_cut_where_the_sampler_has_learned(begin: Begin, tmp_path: Path) -> None:
    begin(Budget(trials=STARTUP_TRIALS + 1)).run()
    before = len(timeline(tmp_path))
    limits = Budget(trials=STARTUP_TRIALS + 2)
    begin(limits).run()
    assert resume_after_every_line(begin, tmp_path, before, limits) > 5


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_a_journal_that_lost_more_than_its_last_line_loses_no_finished_trial(
    begin: Begin, tmp_path: Path, lost: int
) -> None:
    begin(Budget(trials=4)).run()
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-lost]))
    study = begin(Budget(trials=6))
    before = [record.trial for record in study.records]
    assert len(before) >= 4
    study.run()
    assert [record.trial for record in study.records] == list(range(len(study.records)))
    keys = [record.plan.key() for record in study.records if record.plan is not None and record.same_as is None]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("lost_bytes", [1, 2, 399, 2_500, 10**9])
def test_a_trial_whose_record_is_cut_off_runs_again_and_the_study_is_the_undisturbed_one(
    begin: Begin, tmp_path: Path, lost_bytes: int
) -> None:
    limits = Budget(trials=6)
    begin(limits).run()
    wanted = outcomes(begin(limits))
    records = tmp_path / TRIALS
    records.write_bytes(records.read_bytes()[:-lost_bytes])
    study = begin(limits)
    assert len(study.records) == (6 if lost_bytes == 1 else 5 if lost_bytes < 400 else len(study.records))
    study.run()
    assert outcomes(study) == wanted
    assert [trial.number for trial in open_study(tmp_path / JOURNAL, DIRECTIONS).get_trials()] == list(range(6))


def test_a_running_trial_is_taken_up_with_the_values_it_had(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = open_study(path, DIRECTIONS)
    knobs = (Numeric("a.x", 0.0, 1.0, whole=False), Numeric("a.n", 1, 100, whole=True), Choice("a.c", ("p", "q")))
    source = optuna_values(next_trial(study, "tpe", 1))
    had = [source(knob) for knob in knobs[:2]]
    taken = next_trial(open_study(path, DIRECTIONS), "tpe", 1)
    assert taken.number == 0
    again = optuna_values(taken)
    assert [again(knob) for knob in knobs[:2]] == had
    assert again(knobs[2]) in {"p", "q"}


@pytest.mark.parametrize(
    "kind", [*(kind for kind in SAMPLERS if kind != "gp"), pytest.param("gp", marks=pytest.mark.slow)]
)
def test_every_sampler_asks_a_resumed_study_for_what_an_undisturbed_one_tries(
    begin: Begin, tmp_path: Path, kind: str
) -> None:
    # the first ten are drawn at random; after them, each of the GP takes seconds, and more with more knobs and scores
    asked: Any = {"wanted": FEW_KNOBS, "objectives": OBJECTIVES[:2]} if kind == "gp" else {}
    if kind == "cmaes":  # it searches for one objective
        pytest.importorskip("cmaes")
        asked = {"objectives": OBJECTIVES[:1]}
    trials = 11 if kind == "gp" else 12
    undisturbed = begin(Budget(trials=trials), sampler=kind, **asked)
    undisturbed.run()
    for name in (JOURNAL, TRIALS):
        (tmp_path / name).unlink()
    begin(Budget(trials=10), sampler=kind, **asked).run()
    resumed = begin(Budget(trials=trials), sampler=kind, **asked)
    assert len(resumed.records) >= 10
    resumed.run()
    keys = [record.plan.key() for record in resumed.records if record.plan]
    assert keys == [record.plan.key() for record in undisturbed.records if record.plan]
    assert len(set(keys)) > 8


def test_a_sampler_that_does_not_heed_constraints_does_not_warn_of_it(begin: Begin) -> None:
    study = begin(Budget(trials=3), sampler="cmaes", objectives=OBJECTIVES[:1])  # the first plans need no library
    study.run()
    assert [record.state for record in study.records] == ["done"] * 3


@pytest.mark.usefixtures("ladder_of_three")
def test_the_generations_of_nsga2_count_new_plans_and_no_promotions(begin: Begin, tmp_path: Path) -> None:
    begin(Budget(trials=20), sampler="nsga2").run()
    trials = open_study(tmp_path / JOURNAL, DIRECTIONS).get_trials()
    assert any(PROMOTED in trial.user_attrs for trial in trials)
    for trial in trials:
        queued = "fixed_params" in trial.system_attrs
        assert queued != any("generation" in name for name in trial.system_attrs)


def test_all_scored_trials_have_as_many_constraints_as_optunas_gp_wants(begin: Begin, tmp_path: Path) -> None:
    begin(Budget(trials=4)).run()
    begin(Budget(trials=8, train_seconds=1e6, forgetting=0.9)).run()
    trials = open_study(tmp_path / JOURNAL, DIRECTIONS).get_trials(states=[TrialState.COMPLETE])
    assert len({frozenset(trial.constraints) for trial in trials}) == 1


def test_seeds_are_stable_across_versions_and_differ_by_part() -> None:
    assert seeded(0, 1) == 3_621_678_275
    assert len({seeded(0, 1), seeded(1, 0), seeded(0, "1/2"), seeded(0), seeded(0, 2)}) == 5
    assert 0 <= seeded(7, "a plan's key") < 2**32


def test_fixed_knobs_are_not_asked_for(tmp_path: Path) -> None:
    trial = next_trial(open_study(tmp_path / "journal.log", DIRECTIONS), "random", 0)
    source = optuna_values(trial)
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


WAITED = 6


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    """A study in a journal with a few finished trials, which waited in the queue."""
    study = open_study(tmp_path / "journal", ["maximize"])
    for number in range(WAITED):
        study.enqueue_trial({"freeze.blocks": 1 + number % 2, "cache.by": "cache"})
        trial = study.ask()
        trial.suggest_int("freeze.blocks", 1, 4)
        trial.suggest_categorical("cache.by", ["cache", "none"])
        trial.set_constraint("memory", -1.0)
        study.tell(trial, number / 10)
    return study


def shared(study: optuna.Study) -> None:
    """Require that the trials share their ranges and the names of their knobs."""
    first, *others = study.get_trials(deepcopy=False)
    names = list(map(id, first.params))
    for trial in others:
        assert trial.distributions is first.distributions
        assert list(map(id, trial.params)) == names
        assert trial.system_attrs["fixed_params"] is trial.params


def test_finished_trials_share_ranges_and_names_and_are_what_optuna_reads(study: optuna.Study, tmp_path: Path) -> None:
    plain = optuna.load_study(study_name=NAME, storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal"))))
    for one in (study, open_study(tmp_path / "journal", ["maximize"])):
        shared(one)
        assert one.trials == plain.trials


def test_a_journal_file_remembers_its_end_and_reads_from_any_line(study: optuna.Study, tmp_path: Path) -> None:
    assert len(study.trials) == WAITED
    file = JournalFile(str(tmp_path / "journal"))
    lines = list(file.read_logs(0))
    assert len(lines) > WAITED
    assert list(file.read_logs(5)) == lines[5:]
    assert list(file.read_logs(len(lines))) == []
    study.enqueue_trial({"cache.by": "none"})
    assert len(list(file.read_logs(len(lines)))) == 1


def test_copies_share_what_the_trials_hold(study: optuna.Study) -> None:
    copies = optuna.create_study(direction="maximize")
    trials = study.get_trials(deepcopy=False)
    copies.ask()
    add_copies(copies, trials)
    _, *added = copies.get_trials(deepcopy=False)
    for trial, copied in zip(trials, added, strict=True):
        assert copied.number == trial.number + 1
        assert (copied.values, copied.params, copied.constraints) == (trial.values, trial.params, trial.constraints)
        assert copied.params is trial.params
        assert copied.distributions is trial.distributions


def test_options_that_are_equal_but_of_another_type_stay_apart(tmp_path: Path) -> None:
    study = open_study(tmp_path / "journal", ["maximize"])
    trial = study.ask()
    trial.suggest_categorical("a", [True, False])
    trial.suggest_categorical("b", [1, 0])
    study.tell(trial, 1.0)
    ranges = study.get_trials(deepcopy=False)[0].distributions
    assert [type(ranges[name].to_external_repr(0)) for name in ("a", "b")] == [bool, int]
