"""What a shared study holds besides Optuna's trials: the run that began it, kinds of devices, workers, records.

All of it is JSON, and is believed no more than a bundle from elsewhere: it is checked when it is read, as the folder of
a run is, and names no code that is run without the user's word (`tuner.results.records.origin`).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import PlanError, RunError, first_line
from tuner.plan.trial import TrialPlan
from tuner.results.folder import Identity, RunInfo, Spent, checked_info
from tuner.results.kinds import Kind
from tuner.results.records.config import OWN_OPTIONS, RunRequest
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.results.scores.objectives import Objective
from tuner_fleet.address import Address
from tuner_fleet.storage.damaged import DAMAGED
from tuner_fleet.storage.trials import Trials

if TYPE_CHECKING:
    from pydantic import TypeAdapter

#: Attributes of the study: what began it, and, by name, its kinds of devices and its workers.
RUN, KINDS, WORKERS, BASELINES = "run", "kind:", "worker:", "baselines"
#: Which worker is to put the first plans in the queue, as long as it has not; `LEFT` if it ended before: anyone.
FIRST, LEFT = "first", "left"
#: Attributes of a trial: its record, the name of its weights among the artifacts, who works on it, on what kind of
#: device, what it trains, whether that is settled, and how many workers died of it, where it is not tried again.
RECORD, ARTIFACT, WORKER, KIND, KEY = "record", "artifact", "worker", "kind", "key"
HELD, GIVEN_UP = "held", "given-up"
#: Kinds, and workers, that a queued trial is not for: a device of each has refused it.
NOT_FOR = "not-for"
#: What the name of weights is made of. What a database says is not used as a path otherwise.
WEIGHTS_NAME = re.compile(r"[0-9a-f-]{36}")
#: Values that each trial that was scored has.
COSTS = ("train_seconds", "peak_bytes")
NAMES = {"folds": "number of folds"}
#: Limits that each worker has for itself; and those that a trial may break: that says nothing of others.
OWN_LIMITS = ("time_seconds", "memory_bytes", "storage_bytes", "flat_seconds")
OWN_CONSTRAINTS = frozenset({"time", "storage"})


def find_study(storage: BaseStorage, address: Address) -> Trials:
    """Return a study that exists, with its trials.

    Raises:
        RunError: It does not.
    """
    try:
        return Trials(storage, address.study)
    except KeyError:
        raise RunError(
            f"there is no study {address.study!r} at {address.shown}: `tuner run TASK --study ADDRESS` begins one"
        ) from None


def make_study(
    storage: BaseStorage, address: Address, objectives: Sequence[Objective], info: RunInfo
) -> tuple[Trials, bool]:
    """Return a study, and whether this call made it: of several at once, one does."""
    directions = [one.optuna_direction for one in objectives]
    with suppress(optuna.exceptions.DuplicatedStudyError):
        study = optuna.create_study(storage=storage, study_name=address.study, directions=directions)
        study.set_user_attr(RUN, as_attribute(info))
        return find_study(storage, address), True
    return find_study(storage, address), False


def as_attribute(info: RunInfo) -> dict[str, Any]:
    """Return what others need to know of a run: nothing that is of one worker."""
    own: dict[str, Any] = dict.fromkeys(OWN_LIMITS)
    asked = {name: getattr(RunRequest(), name) for name in OWN_OPTIONS if name != "plugins"}
    config = replace(info.config, **asked, limits=replace(info.config.limits, **own))
    blank = replace(info, baselines=(), spent=Spent(), worker="", kind="", kinds={})
    return asdict(replace(blank, config=config))


def info_of(attributes: Mapping[str, Any], address: Address) -> RunInfo:
    """Return what began a study, with its kinds of devices, and what its workers spent.

    Raises:
        RunError: The study is not one of ours, or damaged.
    """
    if not isinstance(attributes.get(RUN), dict):
        raise RunError(f"{address.shown} holds a study, but none of tuner's: give another one, or a name after #")
    content = {**attributes[RUN], BASELINES: attributes.get(BASELINES) or (), "kinds": _named(attributes, KINDS)}
    info = checked_info(content, address.shown)
    workers = {name: _worker(value, address) for name, value in _named(attributes, WORKERS).items()}
    phases: dict[str, float] = {}
    for worker in workers.values():
        for name, seconds in worker.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
    spent = Spent(
        sum(one.seconds for one in workers.values()),
        sum(one.storage_bytes for one in workers.values()),
        sum(one.prefix_samples for one in workers.values()),
        phases,
    )
    noun = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    config = replace(info.config, study=address.shown)
    kind = next(iter(info.kinds), "")
    return replace(info, config=config, spent=spent, kind=kind, ended=f"a study of {noun}")


def _named(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    # A row that is written by others may have bytes for a name.
    names = sorted(name for name in attributes if isinstance(name, str) and name.startswith(prefix))
    return {name.removeprefix(prefix): attributes[name] for name in names}


@cache
def _spent() -> "TypeAdapter[Spent]":
    from pydantic import TypeAdapter

    return TypeAdapter(Spent)


def _worker(content: object, address: Address) -> Spent:
    try:
        return _spent().validate_python(content)
    except ValueError as error:
        raise RunError(f"{address.shown}: what a worker spent cannot be read ({first_line(error)})") from None


def kinds_in(attributes: Mapping[str, Any], blocks: int) -> dict[str, Kind]:
    """Return the kinds of devices that a study names, but for damaged ones."""
    from pydantic import TypeAdapter, ValidationError

    adapter, kinds = TypeAdapter(Kind), dict[str, Kind]()
    for name, content in _named(attributes, KINDS).items():
        with suppress(ValidationError):
            kinds[name] = adapter.validate_python(content)
    rates = {name: kind.rates for name, kind in kinds.items()}
    return {
        name: kinds[name] for name, one in rates.items() if len(one.forward_seconds) == len(one.train_seconds) == blocks
    }


def require_same(theirs: RunInfo, mine: Identity, model: str, names: Sequence[str], address: Address) -> None:
    """Check that this worker would search what the study is about.

    Raises:
        RunError: Something differs; what, and the way out.
    """
    changed = [
        NAMES.get(field.name, field.name)
        for field in fields(Identity)
        if getattr(theirs.identity, field.name) != getattr(mine, field.name)
    ]
    if theirs.model.fingerprint != model:
        changed.append("model")
    if [one.name for one in theirs.objectives] != list(names):
        changed.append("objectives")
    if changed:
        raise RunError(
            f"the study {address.shown} is about another {' and '.join(changed)} "
            f"(task {theirs.task_name}, space {theirs.space_name}, seed {theirs.identity.seed}): "
            "give the same, or name another study after # in the address"
        )


def record_in(trial: FrozenTrial, template: TrialPlan, objectives: Sequence[Objective]) -> TrialRecord | None:
    """Return the record of a trial that has ended; None where it has none, as nobody finished it.

    Raises:
        RunError: It is damaged.
    """
    content = trial.user_attrs.get(RECORD)
    if DAMAGED in trial.user_attrs:
        raise RunError(f"trial {trial.number} in the study cannot be read: {trial.user_attrs[DAMAGED]}")
    if content is None or not trial.state.is_finished() or trial.state is TrialState.FAIL:
        return None
    try:
        record = TrialRecord.from_dict({**content, "trial": trial.number}, template)
        _require_values(record, (*COSTS, *(one.name for one in objectives)))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, PlanError) as error:
        raise RunError(f"the record of trial {trial.number} in the study cannot be read: {first_line(error)}") from None
    return record


def weights_in(trial: FrozenTrial) -> str | None:
    """Return the name of a trial's weights: that of the training which its record is of; None if it has none."""
    name = trial.user_attrs.get(ARTIFACT)
    return name if isinstance(name, str) and WEIGHTS_NAME.fullmatch(name) else None


def _require_values(record: TrialRecord, names: Sequence[str]) -> None:
    """Check that a trial that was scored has a value of each objective and each cost, which other kinds translate.

    Raises:
        ValueError: It does not.
    """
    lacking = [name for name in names if not math.isfinite(record.values.get(name, math.nan))]
    if record.state in SCORED and lacking:
        raise ValueError(f"it was scored without {lacking[0]}")


def as_line(record: TrialRecord) -> str:
    """Return a record as a line of a run's file."""
    return json.dumps(record.to_dict(), separators=(",", ":")) + "\n"


def is_of_its_worker(record: TrialRecord) -> bool:
    """Return whether a trial was refused or killed for limits of its worker alone."""
    broken = record.constraint.keys()
    return record.state in {"rejected", "killed"} and bool(broken) and broken <= OWN_CONSTRAINTS
