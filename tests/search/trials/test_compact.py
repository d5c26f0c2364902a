"""Optuna's trials in less memory: shared where they are equal, and the same trials all the same."""

from pathlib import Path

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage

from tuner.search.trials.compact import JournalFile, add_copies
from tuner.search.trials.journal import NAME, open_study

TRIALS = 6


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    """A study in a journal with a few finished trials, which waited in the queue."""
    study = open_study(tmp_path / "journal", ["maximize"])
    for number in range(TRIALS):
        study.enqueue_trial({"freeze.blocks": 1 + number % 2, "cache.by": "cache"})
        trial = study.ask()
        trial.suggest_int("freeze.blocks", 1, 4)
        trial.suggest_categorical("cache.by", ["cache", "none"])
        trial.set_constraint("memory", -1.0)
        study.tell(trial, number / 10)
    return study


def test_finished_trials_share_ranges_and_names_and_are_what_optuna_reads(study: optuna.Study, tmp_path: Path) -> None:
    first, *others = study.get_trials(deepcopy=False)
    names = list(map(id, first.params))
    for trial in others:
        assert trial.distributions is first.distributions
        assert list(map(id, trial.params)) == names
        assert trial.system_attrs["fixed_params"] is trial.params
    plain = optuna.load_study(study_name=NAME, storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal"))))
    assert study.trials == plain.trials


def test_so_do_those_of_a_journal_that_is_opened_again(study: optuna.Study, tmp_path: Path) -> None:
    again = open_study(tmp_path / "journal", ["maximize"])
    assert again.trials == study.trials
    first, *others = again.get_trials(deepcopy=False)
    assert all(trial.distributions is first.distributions for trial in others)


def test_a_journal_file_remembers_its_end_and_reads_from_any_line(study: optuna.Study, tmp_path: Path) -> None:
    assert len(study.trials) == TRIALS
    file = JournalFile(str(tmp_path / "journal"))
    lines = list(file.read_logs(0))
    assert len(lines) > TRIALS
    assert len(file._log_number_offset) == 2
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
