"""Which trial is exported: by number, by name, or the reason why none can be."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.errors import RunError, UsageError
from tuner.plan.example import example_model, example_task
from tuner.results.folder import Identity, RunInfo
from tuner.results.records.baseline import Baseline
from tuner.results.records.config import RunConfig
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.views.pick import PICKS, named_picks, nothing_feasible, pick_trial

FOLDER = Path("runs/clothing")


#: Picks that can be read, but that nothing meets.
VALID = {"9", "local_accuracy >= 0.95", f"train_seconds < {'9' * 400} and local_accuracy > 0.95"}


def record(trial: int, local: float, global_: float, seconds: float) -> TrialRecord:
    values = {"local_accuracy": local, "global_accuracy": global_, "train_seconds": seconds}
    return TrialRecord(trial, "done", None, values=values)


RECORDS = (
    record(0, 0.90, 0.50, 100),
    record(1, 0.70, 0.80, 10),
    record(2, 0.10, 0.10, 1000),
    record(3, 0.80, 0.70, 50),
    record(4, 0.80, 0.60, 10),
)
INFO = RunInfo(
    Identity("1" * 32, "", 0, deterministic=False),
    RunConfig("digits"),
    "digits",
    "board-10min",
    1,
    example_model(4),
    example_task(),
    OBJECTIVES,
)


def run_of(*records: TrialRecord, front: tuple[int, ...] = (), knee: int | None = None, best: int | None = None) -> Run:
    return Run(FOLDER, INFO, records, front, knee, best)


RUN = run_of(*RECORDS, front=(0, 1, 3, 4), knee=3, best=4)


@pytest.mark.parametrize(
    ("pick", "trial"),
    [
        ("knee", 3),
        ("0", 0),
        ("2", 2),
        ("best", 4),
        ("max(local_accuracy)", 0),
        ("global_accuracy >= 60 % and max(local_accuracy)", 3),
        ("local_accuracy>=80% and min(train_seconds)", 4),
        ("global_accuracy >= 69.9 % and local_accuracy > .7", 3),
        ("min(train_seconds)", 1),
        ("global_accuracy >= 0.6 and max(local_accuracy)", 3),
        ("max(local_accuracy) and global_accuracy >= 0.6", 3),
        ("train_seconds < 50 and local_accuracy > 0.7", 4),
        ("global_accuracy >= 0.7 and train_seconds <= 10", 1),
        ("local_accuracy >= 0.8", 4),
        ("local_accuracy < 0.8", 1),
        ("local_accuracy > 0.8", 0),
        ("global_accuracy > 0 and global_accuracy < 1 and min(global_accuracy)", 0),
    ],
)
def test_a_pick_names_one_trial(pick: str, trial: int) -> None:
    assert pick_trial(RUN, pick).trial == trial


def test_a_front_without_a_knee_gives_its_first_member() -> None:
    assert [pick_trial(run_of(*RECORDS, front=(1, 3)), pick).trial for pick in ("knee", "best")] == [1, 1]


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        ("9", "runs/clothing has no trial 9: it has 0 to 4"),
        ("²", "must be one of best, knee, fastest, smallest, safest, a trial's number, or an expression, got '²'"),
        ("knees", r"must be one of best, .*, got 'knees' \(did you mean 'knee'\?\)"),
        ("best one", "must be one of best, .*, got 'best one': for example 'global"),
        ("global_accuracy >= 50", "global_accuracy is a share from 0 to 1, got 50: write 50 %"),
        ("train_seconds < 50 %", "train_seconds is no share, got 50 %: leave out the %"),
        ("global_accuracy >= percent(x)", "compares a value with a number, got 'percent"),
        (f"train_seconds < {'9' * 400} and local_accuracy > 0.95", "no member of the front meets"),
        ("local_accuracy >= 0.95", "no member of the front meets 'local_accuracy >= 0.95': `tuner show runs/clothing`"),
        (
            "local_acuracy >= 0.5",
            r"there is no value 'local_acuracy' \(did you mean 'local_accuracy'\?\); known: local",
        ),
        ("max(speed)", "there is no value 'speed'; known: local_accuracy, global_accuracy, train_seconds"),
        ("mean(local_accuracy)", "supports min and max, got 'mean'"),
        ("max(local_accuracy) and min(train_seconds)", r"cannot read 'min\(train_seconds\)'"),
        ("local_accuracy >= global_accuracy", "compares a value with a number, got 'global_accuracy'"),
        ("local_accuracy == 0.5", "cannot read 'local_accuracy == 0.5'"),
        ("0.5 < local_accuracy < 0.9", "cannot read '0.5 < local_accuracy < 0.9'"),
        ("local_accuracy > 0.5 or train_seconds < 3", "cannot read"),
        ("__import__('os')", "supports min and max, got '__import__'"),
        ("\0", "must be one of best"),
    ],
)
def test_a_pick_that_means_nothing_is_refused_with_what_would(pick: str, message: str) -> None:
    with pytest.raises(RunError if pick in VALID else UsageError, match=message):
        pick_trial(RUN, pick)


def gaining_run() -> Run:
    """A front with a trial at chance, which is the fastest, the smallest and the one that forgets nothing."""
    values = {
        0: (0.20, 0.99, 1.0, 1e6),  # as good as always the most frequent class
        1: (0.90, 0.50, 80.0, 9e7),
        2: (0.60, 0.90, 9.0, 8e7),
        3: (0.60, 0.80, 9.0, 7e7),
        4: (0.90, 0.60, 90.0, 5e7),
        5: (0.21, 0.97, 2.0, 2e6),  # near-equal to another: not shown
    }
    names = ("local_accuracy", "global_accuracy", "train_seconds", "peak_bytes")
    records = [TrialRecord(n, "done", None, values=dict(zip(names, own, strict=True))) for n, own in values.items()]
    info = replace(
        INFO, baselines=(Baseline("untouched", {"local_accuracy": 0.1}),), task=replace(INFO.task, most_frequent=0.2)
    )
    return replace(run_of(*records, front=(0, 1, 2, 3, 4, 5), knee=2, best=4), info=info, shortlist=(0, 1, 2, 3, 4))


def test_every_name_is_answered_or_refused_with_what_would_do() -> None:
    picks = named_picks(gaining_run())  # no trial at chance
    assert picks == {"best": 4, "knee": 2, "fastest": 4, "smallest": 4, "safest": 2}
    assert {pick: pick_trial(gaining_run(), pick).trial for pick in picks} == picks
    for sizes, smallest in (((2e6, 1e6), 1), ((1.001e6, 1e6), 4)):  # of trials 4 and 1, the latter takes more memory
        run, size = gaining_run(), dict(zip((4, 1), sizes, strict=True))
        records = [
            replace(one, values={**one.values, "global_accuracy": 0.6, "bundle_bytes": size[one.trial]})
            if one.trial in size
            else one
            for one in run.records
        ]
        assert named_picks(replace(run, records=tuple(records)))["smallest"] == smallest
    hopeless = replace(gaining_run(), info=replace(INFO, baselines=(Baseline("untouched", {"local_accuracy": 0.95}),)))
    assert named_picks(hopeless) == {"best": 4, "knee": 2}
    with pytest.raises(RunError, match="none of runs/clothing does: pick best, knee or a trial's number"):
        pick_trial(hopeless, "safest")
    with pytest.raises(RunError, match="smallest compares peak_bytes, which this run did not measure"):
        pick_trial(RUN, "smallest")
    assert set(named_picks(RUN)) < set(PICKS) == set(named_picks(gaining_run()))
    assert named_picks(run_of()) == {}


def test_the_help_and_the_docs_define_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    call(["export", "--help"])
    help_text = capsys.readouterr().out
    docs = Path("docs/commands/export.md").read_text(encoding="utf-8")
    assert [name for name in PICKS if name not in help_text or f"| `{name}` | " not in docs] == []


def refused(trial: int, **constraint: float) -> TrialRecord:
    return TrialRecord(trial, "rejected", None, reason=f"reason {trial}", constraint=constraint)


def test_an_empty_front_says_which_limit_binds_and_the_nearest_miss() -> None:
    run = run_of(
        refused(0, memory=0.9, time=0.1),
        refused(1, memory=0.2),
        refused(2, time=-1.0, memory=0.5),
        refused(3, failed=1),
    )
    said = "3 of 4 trials do not count because of --memory; nearest miss: trial 1, reason 1"
    assert nothing_feasible(run) == said
    with pytest.raises(RunError, match=f"runs/clothing has no front to pick from: {said}"):
        pick_trial(run, "knee")


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("failed", "failures"),
        ("diverged", "diverged trainings"),
        ("support", "missing support of the backend"),
    ],
)
def test_what_keeps_a_front_empty_is_no_option_where_it_is_no_limit(constraint: str, reason: str) -> None:
    said = f"1 of 1 trials do not count because of {reason}; nearest miss: trial 0, reason 0"
    assert nothing_feasible(run_of(refused(0, **{constraint: 1.0}))) == said
    assert nothing_feasible(run_of()) == "no trial ended"
    config = replace(INFO.config, study="sqlite:///study.db")
    damaged = replace(run_of(), info=replace(INFO, config=config, ended="a study of 1 worker, 2 damaged left out"))
    assert nothing_feasible(damaged) == "no trial ended (a study of 1 worker, 2 damaged left out)"
