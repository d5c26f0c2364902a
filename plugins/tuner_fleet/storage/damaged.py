"""Optuna's storage of a database in which others may have written what nobody can read.

Optuna builds all trials at once: a single cell that is no JSON, no date or no distribution would keep everybody from
all of them. Here each such trial is one that failed, and says why; the others are read.
"""

from collections.abc import Callable, Container
from typing import Any, TypeVar

from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import RunError, first_line

#: Attribute of a trial that cannot be read: why.
DAMAGED = "damaged"
#: What Optuna, SQLAlchemy and the readers of JSON and dates raise for a cell that nobody can have meant.
DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError, RecursionError)
T = TypeVar("T")


class ReadableStorage(RDBStorage):
    """Optuna's storage, with trials that cannot be read as failed ones; other rows are named in a `RunError`."""

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return a study's identity; a `KeyError` where there is none, as of Optuna's."""
        try:
            return int(_whole(int, super().get_study_id_from_name(study_name)))
        except KeyError:
            raise
        except DAMAGE as error:
            raise _unreadable("its name", error) from None

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """Return a study's directions."""
        return _read("its directions", super().get_study_directions, study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return a study's attributes."""
        return _read("its attributes", super().get_study_user_attrs, study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return what Optuna notes of a study."""
        return _read("its attributes", super().get_study_system_attrs, study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial, or one that failed instead."""
        try:
            trial = super().get_trial(trial_id)
            _whole(int, trial.number)
        except DAMAGE as error:
            return self._failed(trial_id, error)
        return trial

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        """Return trials as Optuna's cache asks for them; one by one where that fails."""
        try:
            trials = super()._get_trials(study_id, states, included_trial_ids, trial_id_greater_than)
            _whole(int, *(trial.number for trial in trials))
        except DAMAGE:
            rows = self._cells("SELECT trial_id FROM trials WHERE study_id = :key ORDER BY trial_id", study_id)
            wanted = [row for (row,) in rows if row in included_trial_ids or row > trial_id_greater_than]
            read = [self.get_trial(row) for row in wanted]
            return [trial for trial in read if states is None or trial.state in states]
        return trials

    def _failed(self, trial_id: int, error: BaseException) -> FrozenTrial:
        rows = self._cells("SELECT number FROM trials WHERE trial_id = :key", trial_id)
        if not rows:  # there is no such trial
            raise error
        ((number,),) = rows
        return FrozenTrial(
            number=number if type(number) is int else -trial_id, trial_id=trial_id, state=TrialState.FAIL, value=None,
            datetime_start=None, datetime_complete=None, params={}, distributions={}, intermediate_values={},
            user_attrs={DAMAGED: first_line(error)}, system_attrs={},
        )  # fmt: skip

    def _cells(self, statement: str, key: int) -> list[tuple[Any, ...]]:
        """Return cells as the database's driver gives them, without the types of the model, which refuse some."""
        from sqlalchemy import text

        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), {"key": key})]


def _read(what: str, method: Callable[[int], T], study_id: int) -> T:
    try:
        return method(study_id)
    except DAMAGE as error:
        raise _unreadable(what, error) from None


def _whole(kind: type[T], *values: Any) -> Any:
    """Return the last of some values, which must all be of a type."""
    if any(type(value) is not kind for value in values):
        raise TypeError(f"a number is {next(value for value in values if type(value) is not kind)!r:.40}")
    return values[-1] if values else None


def _unreadable(what: str, error: BaseException) -> RunError:
    return RunError(
        f"the study's database is damaged, {what} cannot be read ({first_line(error)}): use a copy of it from before, "
        "or begin another study with a name after # in the address"
    )
