"""What a worker has heard of a study's trials, and what that says on each kind of device."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from optuna.trial import FrozenTrial

from tuner.results.kinds import COST_LIMITS, Kind
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.pareto import front
from tuner.search.setting import Setting
from tuner.search.trials.journal import CONSTRAINT, values_of
from tuner_fleet.kinds import as_seen, paced
from tuner_fleet.study.content import KIND, kinds_in

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
        self._fronts: dict[tuple[str, str], list[TrialRecord]] = {}

    def add(self, record: TrialRecord) -> None:
        """Add a trial that has ended."""
        self.numbers.add(record.trial)
        self.records[record.trial] = record
        self._fronts.update(self._merged([record]))

    def learn_kinds(self, attributes: Mapping[str, Any]) -> None:
        """Take over the kinds of devices that a study's attributes name."""
        learned = {
            name: kind
            for name, kind in kinds_in(attributes, self._setting.model.num_blocks).items()
            if name not in self.kinds or (kind.rates.complete and not self.kinds[name].rates.complete)
        }
        if learned:
            self.kinds |= learned
            self._paced_at, self._fronts = 0, {}
            self._fronts.update(self._merged(self.records.values()))

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

    def translated(self, trial: FrozenTrial, record: TrialRecord) -> FrozenTrial:
        """Return a trial with its values as they are on this device, and what of its limits they break."""
        values = values_of(record, self._setting.objectives)
        if trial.user_attrs.get(KIND) == self._setting.kind or values is None:
            return trial
        seen = copy.copy(trial)
        seen.values = values
        limits = {CONSTRAINT + name: record.constraint.get(name, -1.0) for name in COST_LIMITS}
        seen.system_attrs = {**trial.system_attrs, **limits}
        return seen

    @property
    def fronts(self) -> set[int]:
        """The trials that are on the front of any kind, or will be when more is known of how quick kinds are.

        Trials of equally fast devices alone are compared, as a pace that is corrected leaves their order as it is.
        """
        return {record.trial for members in self._fronts.values() for record in members}

    def is_on_front(self, record: TrialRecord) -> bool:
        """Return whether a trial will be on the front of any kind when it is added."""
        return any(record.trial in {one.trial for one in members} for _, members in self._merged([record]))

    def _merged(self, records: Iterable[TrialRecord]) -> Iterator[tuple[tuple[str, str], list[TrialRecord]]]:
        """Yield what fronts are with more trials: on which kind, of devices how fast, and the trials as seen there."""
        limits = replace(self._setting.limits, train_seconds=None)
        groups: dict[str, list[TrialRecord]] = {}
        for record in records:
            ran = self.kinds.get(record.kind)
            name = "" if ran is None else replace(ran.device, trial_bytes=None).name
            groups.setdefault(name, []).append(record)
        for kind in self.kinds:
            for name, more in groups.items():
                seen = (as_seen(record, kind, self.kinds, limits) for record in more)
                there = [*self._fronts.get((kind, name), ()), *(record for record in seen if record is not None)]
                best = set(front(comparable(there), self._setting.objectives))
                yield (kind, name), [record for record in there if record.trial in best]
