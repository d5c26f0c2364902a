"""How a trial of a shared study ends: with all that is known of it, at once where that is possible."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import TrialState

#: What Optuna says where a database did not answer, which the proxy passes on as text.
NO_ANSWER = "raised during the commit"


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a trial at its end.

    Attributes:
        state: How it ended.
        values: Of the objectives, if it was scored.
        user_attrs: Set before it ends.
        system_attrs: Likewise.
    """

    state: TrialState
    values: Sequence[float] | None
    user_attrs: Mapping[str, Any]
    system_attrs: Mapping[str, Any]


class SharedStorage(BaseStorage, ABC):
    """Optuna's storage as a worker has it."""

    @abstractmethod
    def end_trial(self, trial_id: int, ending: Ending) -> None:
        """End a trial that runs: in one transaction, where this device asks the database itself.

        Args:
            trial_id: Of the trial, as Optuna's storages know it.
            ending: What is known of it.

        Raises:
            UpdateFinishedTrialError: It has ended before.
        """


def end_in_parts(storage: BaseStorage, trial_id: int, ending: Ending) -> None:
    """End a trial by Optuna's own methods, one after the other; see `SharedStorage.end_trial`."""
    for name, value in ending.user_attrs.items():
        storage.set_trial_user_attr(trial_id, name, value)
    for name, value in ending.system_attrs.items():
        storage.set_trial_system_attr(trial_id, name, value)
    storage.set_trial_state_values(trial_id, ending.state, ending.values)
