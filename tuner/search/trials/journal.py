"""Optuna's study on disk: a journal that opens whatever byte a kill cut it at."""

import json
import os
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages.journal import BaseJournalBackend, JournalStorage
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.trial import Trial, TrialState

from tuner.errors import KnobError
from tuner.plan.parts import Scalar
from tuner.plugin.knobs import Choice, Knob, ValueSource
from tuner.plugin.load.calls import uncounted
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.results.scores.objectives import Objective
from tuner.search.trials.compact import JournalFile, Storage
from tuner.search.trials.samplers import sampler_of
from tuner.search.trials.seeds import seeded

NAME = "tuner"
#: Attributes of a trial: the rung that its plan is tried on, the trial that tried it first, and the number of its plan
#: in the prior. The study's own: its lowest rung.
RUNG, PROMOTED, PRIOR = "rung", "promoted", "prior"
#: Where Optuna keeps a constraint of a trial.
CONSTRAINT = "constraints:"
#: Constraints of every scored trial, whether there is such a limit or not: Optuna's GP wants as many of each trial.
JUDGED = ("train-time", "memory", "forget-at-most", "useless")


class _NoLock(BaseJournalFileLock):
    """No lock: the run folder itself is locked, by a lock that a killed process cannot leave behind."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def trim(path: Path) -> None:
    """Cut a torn last line off a journal: a process that is killed while it writes leaves a part of a line."""
    if path.exists():
        os.truncate(path, sound(path.read_bytes()))


def sound(content: bytes) -> int:
    """Return how many of a journal's first bytes are whole lines."""
    end = content.rfind(b"\n") + 1
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        with suppress(ValueError):
            json.loads(content[begin:end])
            break
        end = begin
    return end


class _Replayed(BaseJournalBackend):
    """The first lines of a journal."""

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        self._lines = lines

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the lines from one on."""
        return iter(self._lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse to write."""
        raise NotImplementedError("lines that are replayed are not written")


def rewind(path: Path, recorded: int) -> None:
    """Cut a journal of whole lines back to where every trial without a record, from a number on, was still to end.

    Such a trial runs again. A record is written first: one is only missing where its file was damaged.
    """
    content = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    lines = [json.loads(line) for line in content]

    def is_ahead(count: int) -> bool:
        storage = JournalStorage(_Replayed(lines[:count]))
        trials = [trial for study in storage.get_all_studies() for trial in storage.get_all_trials(study._study_id)]  # noqa: SLF001 - as in next_trial
        return any(trial.state.is_finished() and trial.number >= recorded for trial in trials)

    if is_ahead(len(lines)):
        first = bisect_left(range(len(lines)), True, key=is_ahead)  # noqa: FBT003 - what is searched for
        with path.open("r+b") as file:
            file.truncate(sum(map(len, content[: first - 1])))


def open_study(
    path: Path, directions: Sequence[Literal["minimize", "maximize"]], recorded: int | None = None
) -> optuna.Study:
    """Open or make the study in a journal file; ``recorded`` is the number of the first trial without a record."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trim(path)
    if recorded is not None:
        rewind(path, recorded)
    path.touch(mode=0o600)
    backend = JournalFile(str(path), lock_obj=_NoLock())
    return optuna.create_study(storage=Storage(backend), study_name=NAME, directions=directions, load_if_exists=True)


def place_of(record: TrialRecord, rung: int) -> dict[str, int]:
    """Return the attributes of a trial that tries a trial's plan on a higher rung."""
    return {RUNG: rung, PROMOTED: record.config} | ({} if record.prior is None else {PRIOR: record.prior})


def origin_of(trial: Trial) -> dict[str, Any]:
    """Return the attributes of a trial as its record has them."""
    return {name: trial.user_attrs.get(name) for name in (RUNG, PROMOTED, PRIOR)}


def next_trial(study: optuna.Study, kind: str | BaseSampler, seed: int, rung: int = 0) -> Trial:
    """Return the trial to run next: one that was cut short, with the values it had, or a new one.

    The sampler is seeded by the trial's number, so that a resumed study asks for what an undisturbed one would have.
    """
    trials = study.get_trials(deepcopy=False)
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    waiting = [trial for trial in trials if trial.state is TrialState.WAITING]
    first = min(running or waiting, key=lambda trial: trial.number, default=None)
    study.sampler = sampler_of(kind, seeded(seed, len(trials) if first is None else first.number))
    # Optuna has no public way to take up a running trial
    trial = Trial(study, first._trial_id) if running and first is not None else study.ask()  # noqa: SLF001 - see above
    if RUNG not in trial.user_attrs:
        trial.set_user_attr(RUNG, rung)
    return trial


def optuna_values(trial: Trial) -> ValueSource:
    """Return the source that asks Optuna; KnobError where a knob had other options in the run so far."""

    def source(knob: Knob) -> Scalar:
        with uncounted():  # a sampler may take seconds, and a strategy that draws has little time
            return suggested(knob)

    def suggested(knob: Knob) -> Scalar:
        if knob.fixed:
            return knob.options[0] if isinstance(knob, Choice) else knob.typed(knob.low)
        if not isinstance(knob, Choice):
            if knob.whole:
                return trial.suggest_int(knob.name, int(knob.low), int(knob.high), log=knob.log)
            return trial.suggest_float(knob.name, knob.low, knob.high, log=knob.log)
        try:
            return cast("Scalar", trial.suggest_categorical(knob.name, knob.options))
        except ValueError as error:
            way_out = "install the same plugins as then, or begin a new run"
            raise KnobError(f"{knob} had other options when the run began: {way_out}") from error

    return source


def tell(
    study: optuna.Study, trial: Trial, record: TrialRecord, objectives: Sequence[Objective], floor: float = 0.0
) -> None:
    """Tell the study how a trial ended: its values, or that it was cut short; and by how much it broke each limit.

    To be below the floor, the local accuracy that comes free, counts as a broken limit: so the sampler leaves alone
    what is cheap and learns nothing.
    """
    for name, value in record_constraints(record, floor).items():
        if name not in trial.storage.get_trial(trial._trial_id).constraints:  # noqa: SLF001 - set before a kill
            trial.set_constraint(name, value)
    values = values_of(record, objectives)
    with warnings.catch_warnings():  # not every sampler heeds constraints; the study itself does
        warnings.filterwarnings("ignore", "Constraints have been set", UserWarning)
        if values is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, values)


def tell_unreported(
    study: optuna.Study, records: Sequence[TrialRecord], objectives: Sequence[Objective], floor: float = 0.0
) -> None:
    """Bring a study up to the records, which are written first: a kill may have come in between."""
    trials = study.get_trials(deepcopy=False)
    by_number = {record.trial: record for record in records}
    for frozen in trials:
        if frozen.number in by_number and not frozen.state.is_finished():
            trial = Trial(study, frozen._trial_id)  # noqa: SLF001 - as in next_trial
            if frozen.state is TrialState.WAITING:
                trial.storage.set_trial_state_values(frozen._trial_id, TrialState.RUNNING)  # noqa: SLF001 - the same
            tell(study, trial, by_number[frozen.number], objectives, floor)
    for record in records[len(trials) :]:  # the journal lost more than its last line: the numbers stay
        values, place = values_of(record, objectives), {RUNG: record.rung}
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        study.add_trial(optuna.trial.create_trial(state=state, values=values, user_attrs=place))


def record_constraints(record: TrialRecord, floor: float) -> dict[str, float]:
    """Return by how much a trial broke each limit, and the local accuracy that comes free."""
    constraint = {name: -1.0 for name in JUDGED if record.state in SCORED} | record.constraint
    if "local_accuracy" in record.values:
        constraint["useless"] = floor - record.values["local_accuracy"]
    return constraint


def values_of(record: TrialRecord, objectives: Sequence[Objective]) -> list[float] | None:
    """Return the values of the objectives; None where a trial was not scored."""
    return [record.values[objective.name] for objective in objectives] if record.state in SCORED else None
