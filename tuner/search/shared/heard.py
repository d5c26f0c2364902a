"""What a worker has heard of a study's trials, and what that says on each kind of device."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner.results.kinds import Kind, as_seen, paced
from tuner.results.pareto import front
from tuner.results.records import TrialRecord, comparable
from tuner.search.setting import Setting
from tuner.search.shared.content import kinds_in

#: How quick kinds are is looked at again when there are so many times as many trials.
MORE = 1.1


class Heard:
    """The trials that a worker knows to have ended.

    Args:
        setting: This worker's.
        kinds: Kinds of devices, by name, this one's among them; more are learned.

    Attributes:
        records: By number, as those who ran them wrote them.
        numbers: Of all trials that have ended, those without a record too.
        kinds: Kinds of devices, as the study names them.
    """

    def __init__(self, setting: Setting, kinds: Mapping[str, Kind]) -> None:
        self.records, self.numbers = dict[int, TrialRecord](), set[int]()
        self.kinds = dict(kinds)
        self._setting, self._paced, self._paced_at = setting, dict(kinds), 0

    def add(self, record: TrialRecord) -> None:
        """Add a trial that has ended."""
        self.numbers.add(record.trial)
        self.records[record.trial] = record

    def learn_kinds(self, attributes: Mapping[str, Any]) -> None:
        """Take over the kinds of devices that a study's attributes name."""
        for name, kind in kinds_in(attributes, self._setting.model.num_blocks).items():
            if name not in self.kinds or (kind.rates.complete and not self.kinds[name].rates.complete):
                self.kinds[name], self._paced_at = kind, 0

    def paced(self) -> Mapping[str, Kind]:
        """Return kinds with their pace, which is looked at anew where much has been heard since the last time."""
        if len(self.records) > MORE * self._paced_at:
            self._paced_at, self._paced = len(self.records), paced(self.kinds, self.records.values())
        return self._paced

    def here(self, records: Iterable[TrialRecord], kind: str | None = None) -> list[TrialRecord]:
        """Return what trials say on a kind of device; this one's where none is given."""
        name, kinds = self._setting.kind if kind is None else kind, self.paced()
        seen = (as_seen(one, name, kinds, self._setting.limits) for one in records)
        return [one for one in seen if one is not None]

    def fronts(self, *more: TrialRecord) -> set[int]:
        """Return the trials that are on the front of any kind, or will be when more is known of how quick kinds are.

        Trials of equally fast devices alone are compared, as a pace that is corrected leaves their order as it is.

        Args:
            more: Trials that are to be looked at as if they had been heard.
        """
        found, limits = set[int](), replace(self._setting.limits, train_seconds=None)
        groups: dict[str, list[TrialRecord]] = {}
        for record in (self.records | {one.trial: one for one in more}).values():
            ran = self.kinds.get(record.kind)
            name = "" if ran is None else replace(ran.device, trial_bytes=None).name
            groups.setdefault(name, []).append(record)
        for kind in self.kinds:
            for records in groups.values():
                seen = (as_seen(record, kind, self.kinds, limits) for record in records)
                there = comparable([record for record in seen if record is not None])
                found |= set(front(there, self._setting.objectives))
        return found
