"""A run's way to its study."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.results.folder import JOURNAL, Identity, RunInfo, Spent, open_records
from tuner.results.kinds import Kind
from tuner.results.records.baseline import Baseline
from tuner.search.setting import Setting

if TYPE_CHECKING:
    from tuner.search.trials.queue import Queue


class StudyAccess:
    """A run's way to its study, which is in the journal of its folder; plugins open studies elsewhere."""

    @property
    def kind(self) -> str:
        """Kind of this device, where the study may run on several."""
        return ""

    @property
    def kinds(self) -> dict[str, Kind]:
        """Kinds of devices that the study is known to have run on by now."""
        return {}

    @property
    def seconds(self) -> float:
        """Time that was spent on waiting for the study."""
        return 0.0

    def require_same(self, identity: Identity, model: str, objectives: Sequence[str]) -> None:
        """Raise RunError where a study that exists is about something else, before the device is measured for it."""

    def join(self, setting: Setting, info: RunInfo) -> "tuple[Queue, RunInfo]":
        """Return the study's trials, and what the run's folder, which has ``info`` already, then says of itself."""
        from tuner.search.trials.journal import open_study  # Optuna's: imported when it is needed
        from tuner.search.trials.queue import Queue

        records = open_records(setting.folder, info.template)
        directions = [objective.optuna_direction for objective in setting.objectives]
        journal = open_study(setting.folder / JOURNAL, directions, records[-1].trial + 1 if records else 0)
        return Queue(journal, setting, records), info

    def share_baselines(self, baselines: Sequence[Baseline]) -> None:
        """Note what the search is compared with, where others want to know."""

    def spend(self, spent: Spent) -> None:
        """Note what this run has spent so far, where others want to know."""
