"""The trials of a study in Optuna's storage, by their numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState


class Trials:
    """The trials of a study; Optuna's storages know each by an identity of their own, which is looked up here.

    Args:
        storage: Where the study is.
        name: Its name there.

    Attributes:
        study: Optuna's.

    Raises:
        KeyError: There is no such study.
    """

    def __init__(self, storage: BaseStorage, name: str) -> None:
        self.study = optuna.load_study(study_name=name, storage=storage)
        self._storage, self._study_id = storage, storage.get_study_id_from_name(name)
        self._identities: dict[int, int] = {}

    def all(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials in any of some states, or all."""
        return self.study.get_trials(deepcopy=False, states=states or None)

    def get(self, number: int) -> FrozenTrial:
        """Return a trial as it is now."""
        return self._storage.get_trial(self._identity(number))

    def make(self, template: FrozenTrial) -> int:
        """Make a trial; return its number."""
        identity = self._storage.create_new_trial(self._study_id, template)
        number = self._storage.get_trial_number_from_id(identity)
        self._identities[number] = identity
        return number

    def take_up(self, number: int) -> Trial:
        """Return a running trial as Optuna's objectives have it."""
        return Trial(self.study, self._identity(number))

    def set_attribute(self, number: int, name: str, value: Any) -> None:
        """Set an attribute of a trial.

        Raises:
            UpdateFinishedTrialError: It has ended.
        """
        self._storage.set_trial_user_attr(self._identity(number), name, value)

    def set_state(self, number: int, state: TrialState) -> bool:
        """Set the state of a trial; return whether it changed: of several who begin a waiting trial, one does.

        Raises:
            UpdateFinishedTrialError: It has ended.
        """
        return self._storage.set_trial_state_values(self._identity(number), state)

    def end(
        self, number: int, values: Sequence[float] | None, user: Mapping[str, Any], system: Mapping[str, Any]
    ) -> None:
        """End a trial; its state is set last, so that what has ended is whole.

        Raises:
            UpdateFinishedTrialError: It has ended before.
        """
        identity = self._identity(number)
        for name, value in user.items():
            self._storage.set_trial_user_attr(identity, name, value)
        for name, value in system.items():
            self._storage.set_trial_system_attr(identity, name, value)
        state = TrialState.PRUNED if values is None else TrialState.COMPLETE
        self._storage.set_trial_state_values(identity, state, values)

    def _identity(self, number: int) -> int:
        if number not in self._identities:
            found = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
            self._identities[number] = found
        return self._identities[number]
