"""The trials of a study: what waits, what is claimed, what ended; plugins have queues of studies elsewhere."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed
from tuner.results.folder import append_record
from tuner.results.records.trial import TrialRecord
from tuner.search.setting import Setting
from tuner.search.trials.journal import RUNG, next_trial, tell, tell_unreported


class Queue:
    """The trials of a study in the journal of its run folder; one process runs them all.

    ``records`` had ended when it was opened; ``seed`` is that of what is suggested.
    """

    def __init__(self, study: optuna.Study, setting: Setting, records: Sequence[TrialRecord]) -> None:
        self.study, self.records, self.seed = study, list(records), setting.seed
        self._setting = setting

    @property
    def is_shared(self) -> bool:
        """Whether several processes run its trials: then the first plans are tried in their order."""
        return False

    @property
    def is_new(self) -> bool:
        """Whether the first plans are still to be put in it."""
        return not self.records

    def begin(self) -> None:
        """Note that the first plans are in it."""

    @property
    def lowest(self) -> int | None:
        """Rung that plans are first tried on; None where that is not decided yet."""
        return self.study.user_attrs.get(RUNG)

    @lowest.setter
    def lowest(self, rung: int) -> None:
        self.study.set_user_attr(RUNG, rung)

    def done(self, records: Sequence[TrialRecord]) -> int:
        """Return how many trials count towards ``--trials``: not those that were refused or repeated."""
        return sum(record.state != "rejected" and record.same_as is None for record in records)

    @property
    def begun(self) -> int:
        """Return how many trials there are."""
        return len(self.study.get_trials(deepcopy=False))

    def catch_up(self, floor: float) -> None:
        """Bring the study up to the records, which are written first: a kill may have come in between."""
        tell_unreported(self.study, self.records, self._setting.objectives, floor)

    def has_waiting(self) -> bool:
        """Return whether a trial was cut short, or is next in the queue."""
        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING)))

    def news(self) -> Sequence[TrialRecord]:
        """Return trials that ended in other processes since the last call."""
        return ()

    def known(self, records: list[TrialRecord]) -> list[TrialRecord]:
        """Return records of earlier news as they are known by now."""
        return records

    def is_taken(self, _plan: TrialPlan) -> bool:
        """Return whether a plan is being tried."""
        return False

    def learnable(self, rung: int, _records: Sequence[TrialRecord]) -> list[FrozenTrial]:
        """Return the trials that a sampler may learn from: those of a rung, and all that was refused.

        Every plan is tried on the lowest; on higher ones are only good ones, which tell nothing apart.
        """
        ended = [trial for trial in self.study.get_trials(deepcopy=False) if trial.state.is_finished()]
        return [one for one in ended if one.state is not TrialState.COMPLETE or one.user_attrs.get(RUNG, 0) == rung]

    def enqueue(self, composed: Composed, place: Mapping[str, Any]) -> None:
        """Put one of the first plans in the queue; ``place`` has the attributes of its trial, such as its rung."""
        self.study.enqueue_trial(composed.searched, dict(place), skip_if_exists=True)

    def waiting(self, lowest: int) -> Trial | None:
        """Return the trial that was cut short, or is next in the queue, on the lowest rung if on none; else None."""
        return self._next(lowest) if self.has_waiting() else None

    def is_begun(self) -> bool:
        """Return whether all trials that were asked for are begun, so that there is nothing to do but to wait."""
        return False

    def claim(self, composed: Composed | None, _plan: TrialPlan | None, place: Mapping[str, Any]) -> Trial | None:
        """Begin a trial of a plan, or of what Optuna's sampler suggests; None where the plan is taken.

        ``place`` has the trial's attributes: its rung, and the trial that tried it first.
        """
        if composed is not None and composed.searched:
            self.study.enqueue_trial(composed.searched, dict(place))
        return self._next(place[RUNG])

    def hold(self, _trial: Trial, _plan: TrialPlan) -> bool:
        """Note what a trial trains, on its rung, before it does; return whether it is to: not if the plan is taken."""
        return True

    def finish(self, trial: Trial, record: TrialRecord, floor: float) -> bool:
        """Keep a trial's record; return whether it counts: not if the trial was taken away meanwhile.

        It is written first, and reported to Optuna after: a record on disk is a finished trial.
        """
        append_record(self._setting.folder, record)
        tell(self.study, trial, record, self._setting.objectives, floor)
        return True

    def unwanted(self, records: Sequence[TrialRecord], front: Collection[int]) -> set[int]:
        """Return the trials whose weights nobody needs."""
        return {record.trial for record in records} - set(front)

    def _next(self, lowest: int) -> Trial:
        return next_trial(self.study, self._setting.sampler, self.seed, lowest)
