"""Optuna's trials in less memory: what many of them hold, they share."""

from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState

#: What a copy of a finished trial shares with the trial.
SHARED = ("params", "distributions", "user_attrs", "system_attrs", "datetime_start", "datetime_complete")
#: Attribute in which Optuna keeps the values of a trial that waited in the queue.
QUEUED = "fixed_params"


class JournalFile(JournalFileBackend):
    """A journal file that remembers where its end is, and not where each of its lines begins."""

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]  # Optuna names the class of its own
        """Yield the lines from one on."""
        yield from super().read_logs(log_number_from)
        end = max(self._log_number_offset)
        self._log_number_offset = {0: 0, end: self._log_number_offset[end]}


class Storage(JournalStorage):
    """A journal's storage whose finished trials hold equal names, ranges and options once."""

    def __init__(self, backend: BaseJournalBackend) -> None:
        super().__init__(backend)
        self._pool: dict[Any, Any] = {}
        for study in self.get_all_studies():
            for trial in self.get_all_trials(study._study_id, deepcopy=False):  # noqa: SLF001 - Optuna has no public way to name a study by its number
                self._share(trial)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Note a trial's state, and its values where it ended."""
        is_changed = super().set_trial_state_values(trial_id, state, values)
        self._share(self.get_trial(trial_id))
        return is_changed

    def _share(self, trial: FrozenTrial) -> None:
        if not trial.state.is_finished():
            return
        trial.params, distributions = self._pooled(trial.params), self._pooled(trial.distributions)
        trial.distributions = self._pool.setdefault(tuple(distributions.items()), distributions)
        attributes = self._pooled(trial.system_attrs)
        if attributes.get(QUEUED) == trial.params:
            attributes[QUEUED] = trial.params
        trial.system_attrs, trial.user_attrs = attributes, self._pooled(trial.user_attrs)

    def _pooled(self, value: Any, name: str = "") -> Any:
        """Return an equal value; by name, as options 1 and True are equal but not the same."""
        if isinstance(value, dict):
            return {self._pooled(key): self._pooled(one, key) for key, one in value.items()}
        return self._pool.setdefault((name, value), value) if isinstance(value, str | BaseDistribution) else value


def add_copies(study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
    """Add finished trials of another study to one in memory; the copies share what the trials hold."""
    for trial in trials:  # one by one: Optuna copies all that a trial holds
        study.add_trial(trial)
        copied = study.get_trials(deepcopy=False)[-1]
        for name in SHARED:
            setattr(copied, name, getattr(trial, name))
