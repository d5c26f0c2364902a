"""Optuna's storage in a database, with fewer questions for what each trial of a worker needs.

Optuna's own inserts and checks each knob by itself, reads each kind of a trial's content by itself, and sets each
attribute in a transaction of its own: a hundred statements a trial. Tables and their content are the same here, so that
either may be used on one study.
"""

import copy
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

from optuna import distributions
from optuna.distributions import BaseDistribution, check_distribution_compatibility, distribution_to_json
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._rdb.models import (
    StudyModel,
    StudyUserAttributeModel,
    TrialIntermediateValueModel,
    TrialModel,
    TrialParamModel,
    TrialSystemAttributeModel,
    TrialUserAttributeModel,
    TrialValueModel,
)
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import (
    Connection,
    String,
    Text,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from tuner_fleet.storage.failures import as_text
from tuner_fleet.storage.finish import Ending, end_in_parts

#: Trials whose content is asked for at once: databases bound the values of a question.
AT_ONCE = 500
PARAM, USER, SYSTEM, VALUE, STEP = range(5)
EMPTY = ("params", "distributions", "user_attrs", "system_attrs", "intermediate_values")

TRIAL: Any = TrialModel.__table__
#: MySQL's TEXT holds 64 kB: a record with many epochs, or a task with many classes, may be longer. Tables that are made
#: here hold it; to Optuna they are the same.
for _model in (StudyUserAttributeModel, TrialUserAttributeModel):
    _model.__table__.c.value_json.type = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
TRIALS = select(
    TrialModel.trial_id,
    TrialModel.number,
    TrialModel.state,
    TrialModel._datetime_start_utc,  # noqa: SLF001 - the column of a property
    TrialModel._datetime_complete_utc,  # noqa: SLF001 - the same
).order_by(TrialModel.trial_id)
ONE = TRIALS.where(TrialModel.trial_id == bindparam("trial"))
STUDY = select(StudyModel.study_id).where(StudyModel.study_id == bindparam("study"))
BEFORE = select(func.count(TrialModel.trial_id)).where(
    TrialModel.study_id == bindparam("study"), TrialModel.trial_id < bindparam("trial")
)
NUMBER = update(TRIAL).where(TrialModel.trial_id == bindparam("trial")).values(number=bindparam("to"))
END = (
    update(TRIAL)
    .where(TrialModel.trial_id == bindparam("trial"), TrialModel.state == TrialState.RUNNING)
    .values(state=bindparam("to"), datetime_complete=bindparam("at"))
)
CHANGED = TRIALS.where(
    TrialModel.study_id == bindparam("study"),
    or_(TrialModel.trial_id > bindparam("after"), TrialModel.trial_id.in_(bindparam("others", expanding=True))),
)


def _part(kind: int, model: Any, place: Any, name: Any, number: Any, text: Any) -> Any:
    columns: Any = literal_column(str(kind)).label("kind"), model.trial_id, place, name, number, text
    return select(*columns).where(model.trial_id.in_(bindparam("trials", expanding=True)))


def _numbers(kind: int, model: Any, place: Any, number: Any, type_: Any) -> Any:
    return _part(kind, model, place, cast(type_, String(16)), number, null())


def _attributes(kind: int, model: Any) -> Any:
    return _part(kind, model, literal_column("0"), model.key, null(), model.value_json)


Param, Value, Step = TrialParamModel, TrialValueModel, TrialIntermediateValueModel
#: What trials hold, each kind in the same columns; and what changes of one that runs.
CONTENT = union_all(
    _part(PARAM, Param, Param.param_id, Param.param_name, Param.param_value, Param.distribution_json),
    _attributes(USER, TrialUserAttributeModel),
    _attributes(SYSTEM, TrialSystemAttributeModel),
    _numbers(VALUE, Value, Value.objective, Value.value, Value.value_type),
    _numbers(STEP, Step, Step.step, Step.intermediate_value, Step.intermediate_value_type),
)
CHANGING = _attributes(USER, TrialUserAttributeModel)
to_distribution = lru_cache(maxsize=1024)(distributions.json_to_distribution)


class Database(RDBStorage):
    """Optuna's `RDBStorage`, which makes, reads and ends a trial in a few statements.

    Of a trial that ran when `get_all_trials` read it before, only its state and its user's attributes are read again:
    a worker looks at all that run, again and again, and they are many.
    """

    _running: Mapping[int, FrozenTrial] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        try:
            super().__init__(*arguments, **named)
        except Exception:  # another worker makes the same tables, and it is tried again: no connection stays open
            if hasattr(self, "scoped_session"):
                self.remove_session()
                self.engine.dispose()
            raise

    @cached_property
    def _ranges(self) -> dict[tuple[int, str], BaseDistribution]:
        """Ranges of knobs, by study and name."""
        return {}

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial.

        Raises:
            KeyError: There is none.
        """
        with self._asking() as connection:
            found = _read(connection, connection.execute(ONE, {"trial": trial_id}).all())
        if not found:
            raise KeyError(trial_id)
        return found[0]

    def end_trial(self, trial_id: int, ending: Ending) -> None:
        """End a trial in one transaction; see `SharedStorage`."""
        now = _stored(datetime.now(UTC))
        try:
            with self._asking(writes=True) as connection:
                if not connection.execute(END, {"trial": trial_id, "to": ending.state, "at": now}).rowcount:
                    raise UpdateFinishedTrialError(f"trial {trial_id} has ended")
                _insert(connection, TrialUserAttributeModel, trial_id, _as_rows(ending.user_attrs))
                _insert(connection, TrialSystemAttributeModel, trial_id, _as_rows(ending.system_attrs))
                _insert(connection, Value, trial_id, _as_values(ending.values))
        except IntegrityError:  # it is tried again, and has attributes of its dead worker's
            end_in_parts(self, trial_id, ending)

    @contextmanager
    def _asking(self, *, writes: bool = False) -> Iterator[Connection]:
        """Give a connection, in a transaction where it writes; errors are those of Optuna's own transactions."""
        engine = self.engine if writes else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise StorageInternalError(as_text(error)) from error

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        """Make a trial; its knobs and its attributes in one statement each. Trials with values are made by Optuna."""
        if template_trial is None or template_trial.values is not None or template_trial.intermediate_values:
            return super()._create_new_trial(study_id, template_trial)
        made, ranges = copy.copy(template_trial), template_trial.distributions
        times = {"datetime_start": _stored(made.datetime_start), "datetime_complete": _stored(made.datetime_complete)}
        with self._asking(writes=True) as connection:
            if connection.scalar(STUDY.with_for_update(), {"study": study_id}) is None:  # one after the other
                raise KeyError(study_id)
            row: Any = connection.execute(insert(TRIAL).values(study_id=study_id, state=made.state, **times))
            identity = row.inserted_primary_key[0]
            made.number = connection.scalar(BEFORE, {"study": study_id, "trial": identity}) or 0
            connection.execute(NUMBER, {"trial": identity, "to": made.number})
            knobs = []
            for name, value in made.params.items():
                self._check_range(connection, study_id, name, ranges[name])
                stored, as_json = ranges[name].to_internal_repr(value), distribution_to_json(ranges[name])
                knobs.append({"param_name": name, "param_value": stored, "distribution_json": as_json})
            _insert(connection, Param, identity, knobs)
            _insert(connection, TrialUserAttributeModel, identity, _as_rows(made.user_attrs))
            _insert(connection, TrialSystemAttributeModel, identity, _as_rows(made.system_attrs))
        made._trial_id = identity  # noqa: SLF001 - a trial has no public way to it
        return made

    def _check_range(self, connection: Connection, study_id: int, name: str, mine: BaseDistribution) -> None:
        """Check a knob's range against that of the study's first trial with it, which is read once.

        Raises:
            ValueError: It is another one.
        """
        if (study_id, name) not in self._ranges:
            query = select(Param.distribution_json).join(TrialModel).order_by(Param.param_id).limit(1)
            found = connection.scalar(query.where(TrialModel.study_id == study_id, Param.param_name == name))
            if found is None:
                return
            self._ranges[study_id, name] = to_distribution(found)
        check_distribution_compatibility(self._ranges[study_id, name], mine)

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        """Return some trials of a study, those up to an identity only where they are named."""
        others = [one for one in included_trial_ids if one <= trial_id_greater_than]
        known = {"study": study_id, "after": trial_id_greater_than, "others": others}
        with self._asking() as connection:
            rows = connection.execute(CHANGED, known).all()
            if not rows and connection.scalar(STUDY, {"study": study_id}) is None:
                raise KeyError(study_id)
            before, running = self._running, TrialState.RUNNING
            seen = [row for row in rows if row.state is running and row.trial_id in before]
            new = [row for row in rows if row.state is not running or row.trial_id not in before]
            again = {row.trial_id: copy.copy(before[row.trial_id]) for row in seen}
            for trial in again.values():
                trial.user_attrs = {}
            _fill(connection, again, CHANGING)
            found = sorted([*again.values(), *_read(connection, new)], key=lambda trial: trial.number)
        self._running = {trial._trial_id: trial for trial in found if trial.state is running}  # noqa: SLF001 - as above
        return [trial for trial in found if states is None or trial.state in states]


def _insert(connection: Connection, model: Any, trial_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(model.__table__), [{"trial_id": trial_id, **row} for row in rows])


def _as_rows(attributes: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"key": key, "value_json": json.dumps(value)} for key, value in attributes.items()]


def _as_values(values: Sequence[float] | None) -> list[dict[str, Any]]:
    stored = [Value.value_to_stored_repr(value) for value in values or ()]
    return [{"objective": at, "value": value, "value_type": kind} for at, (value, kind) in enumerate(stored)]


def _read(connection: Connection, rows: Sequence[Any]) -> list[FrozenTrial]:
    """Return trials with all that they hold."""
    found = {row.trial_id: _empty(row) for row in rows}
    _fill(connection, found, CONTENT)
    return list(found.values())


def _fill(connection: Connection, found: Mapping[int, FrozenTrial], query: Any) -> None:
    """Add to trials what a query says of them."""
    identities = list(found)
    for first in range(0, len(identities), AT_ONCE):
        content = connection.execute(query, {"trials": identities[first : first + AT_ONCE]}).all()
        for kind, trial_id, place, name, number, text in sorted(content, key=lambda row: (row[0], row[2])):
            trial = found[trial_id]
            if kind == PARAM:
                trial.distributions[name] = range_ = to_distribution(text)
                trial.params[name] = range_.to_external_repr(number)
            elif kind == USER:
                trial.user_attrs[name] = json.loads(text)
            elif kind == SYSTEM:
                trial.system_attrs[name] = json.loads(text)
            elif kind == VALUE:
                stored = Value.stored_repr_to_value(number, Value.TrialValueType[name])
                trial.values = [*(trial.values or ()), stored]
            else:
                kinds = Step.TrialIntermediateValueType
                trial.intermediate_values[place] = Step.stored_repr_to_intermediate_value(number, kinds[name])


def _empty(row: Any) -> FrozenTrial:
    identity, number, state, start, complete = row
    nothing: Any = {name: {} for name in EMPTY}
    return FrozenTrial(number, state, None, _local(start), _local(complete), trial_id=identity, **nothing)


def _local(moment: datetime | None) -> datetime | None:
    """Return a moment as Optuna's trials have it: of this device's time zone, without its name."""
    return None if moment is None else moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def _stored(moment: datetime | None) -> datetime | None:
    """Return the same as Optuna's tables have it."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)
