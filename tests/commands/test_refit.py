"""Exporting with and without a refit, and in int8: what is written, what is said before, and what ends it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner.backends.base import Exported, Trial
from tuner.bundle.format import Bundle
from tuner.bundle.scores import Scores
from tuner.cli.text.bundles import format_bundle
from tuner.commands import refit
from tuner.commands.bundles import export as command
from tuner.commands.limits import NO_LIMITS, CommandLimits
from tuner.commands.refit import Refit, refit_in_run
from tuner.errors import BudgetError, BundleError, StoreError
from tuner.machine.awake import CLOCK
from tuner.plan.parts import RuntimePlan
from tuner.results.records.trial import HEAD_SOLVED, Outcome, TrialRecord
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial
from tuner.search.listener import Listener
from tuner.search.processes.guard import JobResult
from tuner.search.processes.messages import Failure
from tuner.search.propose.checkpoints import ENDING_EPOCHS
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import outline

pytestmark = pytest.mark.usefixtures("own_cache")
FIXTURES = Path(__file__).parents[1] / "fixtures" / "digits"
BEFORE = Exported({"local_accuracy": 0.9})


class FakeSession:
    """Trains in no time, or ends as it is told."""

    def __init__(self, result: JobResult[Outcome]) -> None:
        self.result, self.trials, self.stores = result, list[Trial](), list[Store | None]()
        self.task = outline(digits())

    def judge(self, _: object, __: object, store: Store | None) -> Exported:
        self.stores.append(store)
        return BEFORE

    def missing(self, *_: object) -> int:
        return 0

    def try_train(self, trial: Trial, *_: object) -> JobResult[Outcome]:
        self.trials.append(trial)
        if self.result.value is not None:
            trial.weights.parent.mkdir(exist_ok=True)
            trial.weights.write_bytes(b"refitted")
        return self.result


class WrittenError(Exception):
    """In the place of a bundle."""


def exported(
    session: FakeSession, folder: Path, monkeypatch: pytest.MonkeyPatch, of: Path = FIXTURES / "run", **options: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return what a bundle would be written from, what was said, and what was warned of."""
    written: dict[str, Any] = {}
    heard, warned = Listener(), list[str]()
    said = list[str]()
    heard.say = said.append  # type: ignore[assignment,method-assign]  # this one's

    @contextmanager
    def opening(*_: object, **__: object) -> Iterator[FakeSession]:
        yield session

    def write(_: object, plan: object, weights: Path, *__: object, **more: object) -> None:
        written.update(plan=plan, weights=weights.read_bytes(), **more)
        raise WrittenError

    monkeypatch.setattr(command, "opened_run", opening)
    monkeypatch.setattr(command, "write_bundle", write)
    run, out = Run.open(of), folder / "out"
    with pytest.raises(WrittenError):
        tuner.export(run, out, "3", task="digits", listener=heard, warn=warned.append, **options)
    assert not list(folder.glob("*out*"))
    return written, said, warned


DONE: JobResult[Outcome] = JobResult("result", Outcome({}))
BROKEN: JobResult[Outcome] = JobResult("failure", failure=Failure("w is no longer finite"))
TOO_LARGE: JobResult[Outcome] = JobResult("memory", most_bytes=10**9)


def test_the_trial_is_trained_once_more_with_its_seed_and_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = FakeSession(DONE)
    written, said, _ = exported(session, tmp_path, monkeypatch)
    (trial,) = session.trials
    assert written["weights"] == b"refitted"
    assert written["before"] is BEFORE
    assert written["plan"] == trial.plan
    assert trial.plan.data.refit
    assert trial.plan.local_samples == trial.plan.task.local_train + trial.plan.task.local_val
    (line,) = said
    assert "refitting trial 3 on all 287 local samples, the 107 for validation included: about " in line
    assert "--no-refit" in line


def test_it_continues_the_trial_where_that_left_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "run", folder)
    run = Run.open(folder)
    record = next(one for one in run.records if one.plan is not None and one.plan.trainable > 1)
    assert record.plan is not None
    recipe = replace(record.plan.recipe, schedule="warmup", epochs=4, patience=0, solve_again=False)
    plan = replace(record.plan, recipe=recipe)
    again = Refit(run, replace(record, plan=plan, epochs=({"epoch": 4.0, "loss": 1.0},)))
    anew = again.seconds(0)
    assert again.earlier is None
    checkpoint = folder / "trials" / str(record.trial) / "checkpoint.pt"
    checkpoint.touch()
    assert again.earlier == checkpoint
    folded = replace(plan, data=replace(plan.data, folds=4))
    final = replace(again.record, trial=99, rung=-1, promoted=record.trial, plan=folded)
    assert Refit(run, final).earlier == checkpoint, "a cross-validated plan has it where it was tried first"
    left = 4 - 4 * plan.train_samples // again.plan.train_samples
    assert 0 < left < 4
    assert again.seconds(0) == pytest.approx(anew * (left + ENDING_EPOCHS) / 4)


def test_the_run_refits_its_pick_in_time_and_the_export_only_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said, heard = tmp_path / "run", list[str](), Listener()
    heard.say = said.append  # type: ignore[assignment,method-assign]  # this one's
    shutil.copytree(FIXTURES / "run", folder)
    run = Run.open(folder)
    again = Refit(run, run.record(3))
    stale = folder / "trials" / "0" / "refit" / "weights.safetensors"
    stale.parent.mkdir(parents=True)
    stale.touch()
    refit_in_run(again, FakeSession(DONE), CommandLimits(CLOCK.now() - 1), heard)  # type: ignore[arg-type]
    assert said[-1] == "no time is left to refit trial 3: tuner export will do it"
    assert not stale.exists()
    refit_in_run(again, FakeSession(TOO_LARGE), NO_LIMITS, heard)  # type: ignore[arg-type]
    assert said[-1] == "trial 3 was not refitted: on all samples it needs more memory than --memory allows"
    forgets = FakeSession(JobResult("result", Outcome({"global_accuracy": 0.0})))
    refit_in_run(again, forgets, NO_LIMITS, heard)  # type: ignore[arg-type]
    assert "trial 3 was not refitted: RunError: it would lower the global accuracy" in said[-1]
    assert not list(folder.glob("trials/*/refit/*")), "what was refused is never exported"
    refit_in_run(again, FakeSession(BROKEN), NO_LIMITS, heard)  # type: ignore[arg-type]
    assert said[-1] == "trial 3 was not refitted: TunerError: w is no longer finite"
    assert not list(folder.glob("trials/*/refit/*"))
    first, second = FakeSession(DONE), FakeSession(DONE)
    for session in (first, second):
        refit_in_run(again, session, NO_LIMITS, heard)  # type: ignore[arg-type]
    assert (len(first.trials), len(second.trials)) == (1, 0), "a run that is resumed has it"
    session = FakeSession(BROKEN)
    written, *_ = exported(session, tmp_path, monkeypatch, of=folder)
    assert written["weights"] == b"refitted"
    assert written["before"] is BEFORE
    assert written["plan"].data.refit
    assert not session.trials
    (folder / "trials" / "3" / "refit" / "weights.safetensors").write_bytes(b"damaged")
    session = FakeSession(DONE)
    assert exported(session, tmp_path, monkeypatch, of=folder)[0]["weights"] == b"refitted"
    assert len(session.trials) == 1


def test_without_it_or_where_it_fails_the_trials_own_weights_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (FIXTURES / "run" / "trials" / "3" / "weights.safetensors").read_bytes()
    session = FakeSession(BROKEN)
    for asked, trained in (({"refit": False}, 0), ({}, 1)):
        options: dict[str, Any] = asked
        written, _, warned = exported(session, tmp_path, monkeypatch, **options)
        assert len(session.trials) == trained
        assert written["weights"] == own
        assert written["before"] is None
        assert not written["plan"].data.refit
    assert "trial 3 was not refitted, so its own weights are exported: TunerError: w is no longer finite" in warned


def test_a_store_that_cannot_be_used_ends_the_refit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession(DONE)
    exported(session, tmp_path, monkeypatch)

    def refused(*_: object) -> Store:
        raise StoreError("it is being deleted from")

    monkeypatch.setattr(refit, "open_store", refused)
    written, _, warned = exported(session, tmp_path, monkeypatch)
    assert [store is not None for store in session.stores] == [True, False]
    assert written["before"] is None
    assert written["store"] is None
    assert "own weights are exported: StoreError: it is being deleted from" in warned[-1]


def test_weights_that_forget_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Run.open(FIXTURES / "run").record(3).values["global_accuracy"]
    for now, kept in ((known - 0.01, True), (known - 0.2, False)):
        session = FakeSession(JobResult("result", Outcome({"global_accuracy": now})))
        written, _, warned = exported(session, tmp_path, monkeypatch)
        assert (written["before"] is not None) is kept
    assert "was not refitted, so its own weights are exported: RunError: it would lower the global acc" in warned[0]


def test_a_broken_limit_leaves_nothing_and_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BudgetError, match=r"more than memory allows .*; refit=False exports the trial's own weights"):
        exported(FakeSession(TOO_LARGE), tmp_path, monkeypatch, memory="1MB")
    monkeypatch.setattr(Refit, "seconds", lambda *_: 9000.0)
    with pytest.raises(BudgetError, match=r"the refit takes about .* of time are left: give more; refit=False"):
        exported(FakeSession(DONE), tmp_path, monkeypatch, time="1h")
    assert not list(tmp_path.iterdir())


def test_the_head_and_the_epochs_are_those_of_the_trial() -> None:
    run = Run.open(FIXTURES / "run")
    record, kept = run.record(3), []
    assert record.plan is not None
    plan = replace(record.plan, recipe=replace(record.plan.recipe, epochs=9, solve_again=True))
    entries = ({"epoch": 1.0, "loss": 1.0, "seconds": 2.0}, {"epoch": 2.0, "loss": 1.0, "seconds": 2.0})
    for values in ({HEAD_SOLVED: 1.0}, {HEAD_SOLVED: 0.0}, {}):
        changed = replace(record, plan=plan, values={**values, "train_seconds": 4.0}, epochs=entries)
        again = Refit(run, changed)
        assert again.plan.recipe.epochs == 2
        kept.append(again.plan.recipe.solve_again)
        assert again.seconds(0) == pytest.approx(4 * again.plan.train_samples / plan.train_samples)
    assert kept == [True, False, False]


def test_the_local_scores_are_those_from_before_and_say_so() -> None:
    own, then = (dict[str, Any](threshold=far, samples=9, reads=name) for far, name in ((0.4, ""), (0.1, "view")))
    sections = {"label_thresholds": (0.9,), "unknown": then}
    after = Exported({"local_accuracy": 1.0, "local_loss": 0.0, "test_accuracy": 0.8}, sections)
    before = Exported({"local_accuracy": 0.7}, {"label_thresholds": (0.5,), "unknown": own})
    judged = command._judged_by(before, after)
    kept: dict[str, Any] = {"label_thresholds": (0.5,), "unknown": {**own, "reads": "view"}}
    assert judged == Exported({"local_accuracy": 0.7, "test_accuracy": 0.8}, kept)
    assert "unknown" not in command._judged_by(before, replace(after, sections={})).sections
    layers = [Exported({}, {"int8": {"float_layers": count}}) for count in (0, 2)]
    with pytest.raises(BundleError, match="keeps 2 layers in float32, but was measured with 0"):
        command._judged_by(*layers)
    scores = Scores({}, {}, judged.checks, refit_samples=107, test_left_out=True, doubts=("warning: a session",))
    assert Scores.from_dict(scores.to_dict()) == scores
    info = replace(Bundle.open(FIXTURES / "bundle").info, scores=scores)
    text = format_bundle(Path("out"), info, {"local_accuracy": 107})
    assert (
        "local accuracy: measured before the refit, on 107 validation samples, which the refit then trained on" in text
    )
    assert "warning: a session" in text


@pytest.mark.parametrize(
    ("precision", "options", "most_loss"),
    [
        ("fp32", {"int8": True}, 0.01),
        ("int8", {"int8": True}, 0.01),
        ("fp32", {"int8": True, "int8_loss": 2.5}, 0.025),
        ("int8", {"int8": True, "int8_loss": 2.5}, 0.025),
        ("int8", {}, 1.0),  # as it was scored
        ("int8", {"int8_loss": 0.5}, 0.005),
    ],
)
def test_int8_may_cost_a_point_unless_more_is_allowed_or_the_trial_was_scored_so(
    precision: str, options: dict[str, Any], most_loss: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = RuntimePlan() if precision == "fp32" else RuntimePlan(precision="int8", int8_loss=1.0)

    def in_precision(run: Run, pick: str) -> TrialRecord:
        record = pick_trial(run, pick)
        assert record.plan is not None
        return replace(record, plan=replace(record.plan, runtime=own))

    monkeypatch.setattr(command, "pick_trial", in_precision)
    plan = exported(FakeSession(DONE), tmp_path, monkeypatch, refit=False, **options)[0]["plan"]
    assert (plan.runtime.precision, plan.runtime.int8_loss) == ("int8", pytest.approx(most_loss))
