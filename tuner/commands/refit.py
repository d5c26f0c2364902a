"""The last training of a trial, when it is exported: on every local sample, those that judged it too."""

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.backends.base import CHECKPOINT, Trial
from tuner.bundle.format import WEIGHTS, file_hash
from tuner.commands.limits import CommandLimits
from tuner.errors import BudgetError, MemoryLimitError, RunError, TunerError, first_line
from tuner.files import write_private
from tuner.machine.awake import CLOCK
from tuner.metrics import wilson
from tuner.plan.trial import TrialPlan
from tuner.results.records.origin import is_own
from tuner.results.records.trial import Outcome, TrialRecord, plan_of
from tuner.results.run import Run
from tuner.search.listener import CHECKING, REFITTING, Listener
from tuner.search.processes.guard import JobLimits, Progress
from tuner.search.processes.remote import RemoteSession
from tuner.search.propose.checkpoints import refit_plan, refit_seconds
from tuner.search.propose.lines import can_continue
from tuner.search.setting import RUN_RESERVE
from tuner.search.trials.seeds import seeded
from tuner.store.store import Store, disk_bytes, open_store
from tuner.units import format_seconds

#: Ending of the file with the hash of what a run has refitted.
HASH = ".sha256"
WAY_OUT = "--no-refit exports the trial's own weights"


@dataclass(frozen=True, slots=True)
class Refit:
    """A trial of a run that is to be trained again; its plan is the same but for its data, and what was decided."""

    run: Run
    record: TrialRecord

    @property
    def plan(self) -> TrialPlan:
        """What is trained."""
        return refit_plan(self.record)

    @property
    def kept(self) -> Path:
        """Where the run itself leaves the weights that it has refitted at its end; next to them, their hash."""
        return self.run.folder / "trials" / str(self.record.trial) / "refit" / WEIGHTS

    @property
    def is_kept(self) -> bool:
        """Whether the run has refitted it, and the weights are those that it then wrote."""
        hashed = self.kept.with_suffix(HASH)
        return self.kept.is_file() and hashed.is_file() and hashed.read_text() == file_hash(self.kept)

    @property
    def earlier(self) -> Path | None:
        """The trial's checkpoint, where its training can be continued on all samples; else it is trained anew."""
        before, again = plan_of(self.record).trainings[0], self.plan.trainings[0]
        if not can_continue(before) or before.line() != again.line():
            return None
        # a plan that was cross-validated has its checkpoint where it was tried before
        alike = [one.trial for one in self.run.records if one.config == self.record.config and one.rung == 0]
        paths = (self.run.folder / "trials" / str(trial) / CHECKPOINT for trial in (self.record.trial, *alike))
        return next((path for path in paths if path.is_file()), None)

    def seconds(self, missing: int) -> float:
        """Return what it is expected to take: as long as the trial for each sample, and to fill what is missing."""
        values, of_plan = self.record.values, plan_of(self.record).trainings[0]
        taken = values.get("train_seconds", 0.0)
        if self.run.info.config.deterministic:  # then costs are of no clock
            taken = sum(entry.get("seconds", 0.0) for entry in self.record.epochs)
        filling = values.get("fill_seconds", 0.0) / max(1, of_plan.pool_samples)
        return refit_seconds(self.record, taken, continues=self.earlier is not None) + missing * filling

    def carry_out(
        self, session: RemoteSession, weights: Path, limits: CommandLimits, listener: Listener, note: str = WAY_OUT
    ) -> Path:
        """Train, write the weights, and return where; those that the run has refitted itself are taken as they are.

        `note` says what can be done about the time that it takes.

        Raises:
            BudgetError: It would break a limit, or has.
            TunerError: The plan can no longer be carried out, or the weights forget what those of the trial know.
            RuntimeError: It failed; with its traceback.
        """
        if self.is_kept:
            return self.kept
        plan, info = self.plan.trainings[0], self.run.info
        seed = seeded(info.config.seed, plan_of(self.record).trainings[0].line())
        try:
            _require(limits, self.seconds(0))
            with closing(_store(self.run)) as store:
                expected = self.seconds(session.missing([plan], store) if plan.cached else 0)
                listener.say(
                    f"refitting trial {self.record.trial} on all {plan.local_samples:,} local {info.task.noun}, the "
                    f"{info.task.local_val:,} for validation included: about {format_seconds(expected)} ({note})"
                )
                _require(limits, expected)
                listener.phase(REFITTING)
                job_limits = JobLimits(kill_at=limits.end, memory_bytes=limits.memory_bytes)
                result = session.try_train(
                    Trial(plan, seed, store, weights, earlier=self.earlier), job_limits, shown_on(listener)
                )
            self._require_kept(result.unwrap("the refit"))
        except BudgetError as error:
            raise type(error)(f"{error}; {note}") from None
        if not weights.is_file():
            raise RunError("it wrote no weights")
        return weights

    def _require_kept(self, outcome: Outcome) -> None:
        """Refuse weights that answer the global validation samples, which are never learned, surely worse.

        They may fall to what the given model has, less what the run's own limit allows to be forgotten.
        """
        name, count, info = "global_accuracy", plan_of(self.record).global_scored, self.run.info
        before, after = (values.get(name) for values in (self.record.values, outcome.values))
        if before is None or after is None or not count:
            return
        may_fall_to = info.untouched.values.get(name, 0.0) - (info.config.limits.forgetting or 0.0)
        if after < min(wilson(before, count)[0], may_fall_to):
            score = self.run.objective(name)
            raise RunError(f"it would lower the {score.title} from {score.text(before)} to {score.text(after)}")


def refit_in_run(again: Refit, session: RemoteSession, limits: CommandLimits, listener: Listener) -> None:
    """Refit what a run picks, while there is time left: its export then only writes it."""
    for folder in again.run.folder.glob("trials/*/refit"):
        if folder != again.kept.parent or not again.is_kept:  # of what an earlier session picked, or was killed at
            shutil.rmtree(folder, ignore_errors=True)
    part, name = again.kept.with_suffix(".new"), f"trial {again.record.trial}"
    try:
        if again.carry_out(session, part, limits, listener, note="tuner export is quick then") == part:
            write_private(again.kept.with_suffix(HASH), file_hash(part))
            part.replace(again.kept)
    except MemoryLimitError:
        listener.say(f"{name} was not refitted: on all samples it needs more memory than --memory allows")
    except BudgetError:
        listener.say(f"no time is left to refit {name}: tuner export will do it")
    except (TunerError, RuntimeError, OSError) as error:
        listener.say(f"{name} was not refitted: {first_line(error)}")
    finally:
        if not again.is_kept:
            shutil.rmtree(again.kept.parent, ignore_errors=True)


@contextmanager
def kept_features(run: Run) -> Iterator[Store | None]:
    """Open the store that a run has filled, to read; None where it cannot be used, as an export can do without."""
    try:
        store = open_store(_place(run))
    except TunerError:
        yield None
        return
    with closing(store):
        yield store


def _store(run: Run) -> Store:
    """Open a run's store within the run's limit."""
    storage = run.info.config.limits.storage_bytes
    cap = None if storage is None else max(0, storage - RUN_RESERVE - disk_bytes(run.folder))
    return open_store(_place(run), cap, "--storage of the run")


def _place(run: Run) -> Path | None:
    """Return the folder of a run's store; None for the user's own, where the run has none that can be trusted."""
    config = run.info.config
    place = Path(config.store) if config.store else None
    return place if place is not None and place.is_dir() and is_own(config, run.info.mark) else None


def _require(limits: CommandLimits, expected: float) -> None:
    """Refuse a refit that is expected to take more seconds than are left."""
    left = math.inf if limits.end is None else max(0.0, limits.end - CLOCK.now())
    if expected > left:
        raise BudgetError(
            f"the refit takes about {format_seconds(expected)}, but {format_seconds(left)} of --time are left: give "
            "more"
        )


def shown_on(listener: Listener) -> Progress:
    """Return what passes the progress of a training, or of an export, on."""

    def show(progress: Mapping[str, Any]) -> None:
        if "warning" in progress:
            listener.say(f"warning: {progress['warning']}")
        elif "filled" in progress:
            listener.step("features", progress["filled"], progress["of"])
        elif "step" in progress:
            listener.step("training", progress["step"], progress["steps"])
        elif "scored" in progress:
            listener.phase(CHECKING)
            listener.step("samples", progress["scored"], progress["of"])

    return show
