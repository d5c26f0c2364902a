"""Fill the feature store ahead of trials: what is stored, what is missing, what it costs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tuner.backends.base import Filling
from tuner.errors import BudgetError, MemoryLimitError
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import memory_limit
from tuner.plan.parts import DataPlan, Precision
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS, QUANTISING_SAMPLES, feature_bytes, feature_records
from tuner.planner.price import price
from tuner.search.estimate.rates import keep_rates
from tuner.search.listener import FILLING, Listener
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import RemoteSession
from tuner.search.setting import CLOSING_SECONDS, MEASURING_SHARE, Setting
from tuner.store.calibrated import has_blocks
from tuner.store.store import Store
from tuner.units import format_bytes, format_limit, format_seconds

#: What the frozen blocks compute in, and the size of their input.
Pass = tuple[Precision, int]


class RecordSet(NamedTuple):
    """Records of one cut at one width; with exits, of their calibration samples too; with folds, to score them all.

    Exits that are calibrated out of fold take all local samples. A pass also learns what the exits of its first plan
    begin with.
    """

    cut: int
    bits: int
    for_exits: bool
    for_folds: bool = False
    out_of_fold: bool = False
    begun_with: int | None = None
    precision: Precision = "fp32"
    size: int = 0


@dataclass(frozen=True, slots=True)
class FilledRange:
    """What is stored of a record set: shares of the local samples and of the global training data, and its folders."""

    share: float
    mixed: float
    folders: tuple[Path, ...]


def record_sets(plan: TrialPlan) -> set[RecordSet]:
    """Return what a filling pass writes for a plan."""
    precision = plan.runtime.precision
    sets = {RecordSet(cut, bits, for_exits=False, precision=precision) for cut, bits in feature_records(plan)}
    if plan.heads.exits:
        of_all = plan.out_of_fold
        sets |= {RecordSet(cut, bits, for_exits=True, out_of_fold=of_all) for cut, bits in feature_records(plan)}
    if plan.heads.global_weight:
        sets |= {
            RecordSet(place.block, max(CODED_BITS, plan.cache.bits), for_exits=True, begun_with=place.channels)
            for place in plan.heads.exits
        }
    if plan.data.folds:
        sets |= {one._replace(for_folds=True) for one in sets if not one.for_exits}
    return {one._replace(size=plan.size) for one in sets}.union(*map(record_sets, plan.passes[1:]))


def pass_of(plan: TrialPlan) -> Pass:
    """Return what the plans of one filling pass have in common."""
    return plan.runtime.precision, plan.size


#: More global samples than the first trials need are filled ahead only if that takes at most this share of the time.
AHEAD_SHARE = 0.25
STORAGE_SHARE = 0.9
TIGHT_SHARE = 0.7
#: What a pass reports, by the name of how much of it is done.
STEPS = {"filled": "features", "quantised": "int8 calibration", "started": "side heads"}
#: A shorter pass measures its start-up.
PACED_SAMPLES = 64


class UnfilledError(BudgetError):
    """A limit ended a filling pass; `constraint` says which, and by how much, as a trial's record does."""

    def __init__(self, text: str, constraint: dict[str, float]) -> None:
        super().__init__(text)
        self.constraint = constraint


class Filler:
    """Fills the store for the plans of one study.

    ``seconds`` and ``samples`` count all passes so far; ``pace`` is the ratio of the seconds that the last one took to
    those expected from the rates.
    """

    def __init__(
        self, setting: Setting, sessions: Mapping[str, RemoteSession], store: Store, listener: Listener
    ) -> None:
        self._setting, self._sessions, self._store, self._listener = setting, sessions, store, listener
        self._filled: dict[RecordSet, FilledRange] = {}
        self._too_large: dict[frozenset[RecordSet], UnfilledError] = {}
        #: Those in int8 that need no quantising any more, among others.
        self._made: set[Pass] = {("int8", 0)} if has_blocks(setting.model.identity) else set()
        self._seconds_each: dict[tuple[Pass, int], float] = {}
        self.seconds, self.samples, self.pace = 0.0, 0, 1.0
        self._stopped_each = 0.0

    def seconds_each(self, plan: TrialPlan) -> float:
        """Return the seconds to fill one record at the plan's cut: as last measured."""
        return self._seconds_each.get((pass_of(plan), plan.cuts[-1]), price(plan, self._setting.rates).fill_seconds)

    def missing(self, plan: TrialPlan) -> int:
        """Return how many samples this study has not filled yet for the plan; quantising counts as so many more."""
        if not plan.cached:
            return 0
        needed, is_made = record_sets(plan), plan.runtime.precision == "fp32" or pass_of(plan) in self._made
        ranges = [self._filled[key] for key in needed if key in self._filled]
        evicted = not all(folder.exists() for filled in ranges for folder in filled.folders)
        if evicted or len(ranges) < len(needed):
            return plan.read_samples + (0 if is_made else QUANTISING_SAMPLES)
        share, mixed = min(filled.share for filled in ranges), min(filled.mixed for filled in ranges)
        stored = replace(plan, data=DataPlan(share=share, folds=plan.data.folds))
        apart = plan.local_samples + _scored(plan) - stored.local_samples - _scored(stored)
        known = plan.task.mixed_samples(mixed)
        return max(0, apart) + max(0, plan.pool_samples - plan.local_samples - known)

    def prepare(self, plans: Iterable[TrialPlan], within: float = math.inf) -> bool:
        """Fill every cut the study may ask for first, in one pass, as far as cap and time allow; the first plans first.

        Return whether the first plan's features are there. BudgetError where a limit leaves nothing filled.
        """
        cached = [replace(plan, data=plan.pool) for plan in plans if plan.cached]
        cached = [plan for plan in cached if plan.size == cached[0].size]  # another size takes a pass of its own
        if not cached:
            return True
        first_alpha, most_alpha = cached[0].data.alpha, max(plan.data.alpha for plan in cached)
        left = self._setting.seconds_left
        ahead = replace(cached[0], data=replace(cached[0].data, alpha=most_alpha))
        alpha = most_alpha if self._pass_seconds([ahead]) <= AHEAD_SHARE * left else first_alpha
        selected = self._fitting(replace(plan, data=replace(plan.data, alpha=alpha)) for plan in cached)
        if not selected:
            return True
        if self._pass_seconds(selected) > min(within, TIGHT_SHARE * left):
            selected = [plan for plan in selected if plan.split <= selected[0].split]  # on the way: they take no longer
            if math.isinf(within):  # else a smaller slice may be had
                self._refuse_if_hopeless(selected, left)
        self._fill_apart(selected, CLOCK.now() + within)
        return not self.missing(selected[0]) or self.refusal(selected[0]) is not None

    def fits(self, plan: TrialPlan, within: float) -> bool:
        """Return whether a plan's features take so many seconds at most, by the last pass that was stopped."""
        return self.missing(plan) * self._stopped_each <= within

    def fill_with(self, plan: TrialPlan, others: Iterable[TrialPlan]) -> None:
        """Fill what a plan needs, and in the same pass what others need of the same samples; see `fill`.

        As far as the cap allows; where memory is too small for all, the plan's own cuts alone.
        """
        if not self.missing(plan):
            return
        alike = (replace(one, data=plan.data) for one in others if one.cached and one.size == plan.size)
        together = [plan, *self._fitting([plan, *alike])[1:]]
        try:
            self.fill(together)
        except UnfilledError as error:
            if "memory" not in error.constraint or len(together) == 1:
                raise
            self.fill([plan])

    def _fitting(self, plans: Iterable[TrialPlan]) -> list[TrialPlan]:
        """Return plans whose record sets differ and have room together, the first ones first."""
        chosen: set[RecordSet] = set()
        selected: list[TrialPlan] = []
        stored, cap = 0, self._store.cap_bytes
        for plan in plans:
            wide = replace(plan, cache=replace(plan.cache, bits=max(CODED_BITS, plan.cache.bits)))
            needs = feature_bytes(wide)
            if not chosen.issuperset(record_sets(plan)) and (cap is None or stored + needs <= STORAGE_SHARE * cap):
                chosen.update(record_sets(plan))
                selected.append(wide)
                stored += needs
        return selected

    def _fill_apart(self, plans: Sequence[TrialPlan], stop_at: float) -> None:
        """Fill what the plans need, in as many passes as memory requires; a plan that does not fit is refused later."""
        plans = [plan for plan in plans if self.missing(plan)]
        try:
            self.fill(plans, stop_at)
        except UnfilledError as error:
            if "memory" in error.constraint and len(plans) > 1:
                self._fill_apart(plans[: len(plans) // 2], stop_at)
                self._fill_apart(plans[len(plans) // 2 :], stop_at)
            elif CLOCK.now() >= stop_at and self._setting.seconds_left > CLOSING_SECONDS:
                return  # a smaller slice comes next
            elif not self._filled:
                raise

    def refusal(self, plan: TrialPlan) -> UnfilledError | None:
        """Return why a plan's features cannot be computed: memory was too small for a filling pass that it needs."""
        needed = frozenset[RecordSet](record_sets(plan)) if self.missing(plan) else frozenset[RecordSet]()
        return next((error for keys, error in self._too_large.items() if keys <= needed), None)

    def fill(self, plans: Sequence[TrialPlan], stop_at: float = math.inf) -> None:
        """Fill what the plans need and this study has not filled yet, in one pass for each precision and size.

        A pass stops at ``stop_at`` (of `CLOCK`), and when the study's time is up. UnfilledError says that it had
        no time or memory; what was filled stays, and a pass that memory was too small for is not begun again.
        """
        for alike in self._by_pass(plan for plan in plans if self.missing(plan)):
            self._pass(alike, stop_at)

    def _pass(self, plans: Sequence[TrialPlan], stop_at: float) -> None:
        """Do what `fill` does, for plans of one pass."""
        needed = frozenset[RecordSet]().union(*map(record_sets, plans))
        for keys, error in self._too_large.items():
            if keys <= needed:
                raise UnfilledError(str(error), error.constraint)
        end, memory = self._setting.end, self._setting.limits.memory_bytes
        soft = min(stop_at, math.inf if end is None else end - CLOSING_SECONDS)
        hard = None if end is None else end - CLOSING_SECONDS / 2
        limits = JobLimits(soft if math.isfinite(soft) else None, hard, memory, self._setting.limits.storage_bytes)
        started = CLOCK.now()
        self._listener.phase(FILLING)
        session = self._sessions[plans[0].runtime.backend]
        result = session.try_fill(plans, self._store, limits, self._progress)
        self.seconds += CLOCK.now() - started
        if result.verdict == "interrupted":
            raise KeyboardInterrupt
        if result.verdict == "memory" and memory:
            group = memory_limit()
            more = "" if group is None else f", or the control group more than its {format_bytes(group)}"
            self._too_large[needed] = UnfilledError(
                f"--memory {format_limit(memory)} is too small to run the frozen prefix, which took "
                f"{format_bytes(result.most_bytes)}: give more{more}",
                {"memory": math.log(result.most_bytes / memory)},
            )
            raise self._too_large[needed]
        if result.value is not None and result.value.stopped:
            self._stopped_each = (CLOCK.now() - started) / max(1, result.value.records)
        if result.verdict == "deadline" or (result.value is not None and result.value.stopped):
            reason = "--time was up while features were computed; those that are done are kept: give more, and --resume"
            raise UnfilledError(reason, {"time": 1.0})
        self._note(plans, result.unwrap("the frozen prefix"))

    def _note(self, plans: Sequence[TrialPlan], filling: Filling) -> None:
        self.samples += filling.records
        self._made.add(pass_of(plans[0]))
        if filling.records >= PACED_SAMPLES:
            expected = max(price(plan, self._setting.rates).fill_seconds for plan in plans)
            self.pace = filling.seconds / filling.records / max(expected, 1e-9)
        for plan in plans:
            for key in record_sets(plan):
                if key.size != plan.size or (key.begun_with is not None and plan is not plans[0]):
                    continue
                folders = filling.folders.get((key.cut, key.bits))
                if folders is not None:
                    old = self._filled.get(key, FilledRange(0.0, 0.0, ()))
                    share, mixed = plan.data.share, plan.pool.alpha * plan.data.share
                    self._filled[key] = FilledRange(max(share, old.share), max(mixed, old.mixed), folders)
        for cut, seconds in filling.seconds_per_sample.items():
            self._seconds_each.setdefault((pass_of(plans[0]), cut), seconds)

    def _progress(self, progress: Mapping[str, Any]) -> None:
        if "warning" in progress:
            self._listener.say(f"warning: {progress['warning']}")
        for name in STEPS.keys() & progress.keys():
            self._listener.step(STEPS[name], progress[name], progress["of"])

    def _pass_seconds(self, plans: Sequence[TrialPlan]) -> float:
        def seconds(plan: TrialPlan) -> float:
            return self.missing(plan) * price(plan, self._setting.rates).fill_seconds

        return sum(max(map(seconds, alike)) for alike in self._by_pass(plans))

    @staticmethod
    def _by_pass(plans: Iterable[TrialPlan]) -> list[list[TrialPlan]]:
        """Return the plans of each pass, that of the first plan first."""
        found: dict[Pass, list[TrialPlan]] = {}
        for own in (own for plan in plans for own in plan.passes):
            found.setdefault(pass_of(own), []).append(own)
        return list(found.values())

    def _refuse_if_hopeless(self, plans: Sequence[TrialPlan], left: float) -> None:
        """Refuse a budget that is too small, by what the store really lacks and how fast the device is now."""
        plans = self._by_pass(plans)[0]
        runtime = plans[0].runtime
        session = self._sessions[runtime.backend]
        missing = session.missing(plans, self._store)
        rates = self._setting.rates
        if missing * price(plans[0], rates).fill_seconds > left and not self._setting.deterministic:
            with suppress(MemoryLimitError, BudgetError):  # they were computed from FLOPs for the same reason
                rates = replace(session.measure(runtime.threads, MEASURING_SHARE * left), first=rates.first)
                keep_rates(runtime.backend, self._setting.model, runtime.threads, rates)
            left = self._setting.seconds_left
        needs = missing * max(price(plan, rates).fill_seconds for plan in plans)
        if needs > left:
            raise BudgetError(
                f"--time is too small for one trial: {format_seconds(max(0.0, left))} are left, but "
                f"computing the features of {missing:,} samples takes about {format_seconds(needs)}: "
                f"give at least {format_seconds(2 * needs + 10)}"
            )


def _scored(plan: TrialPlan) -> int:
    """Return the number of samples that a plan is scored on."""
    return plan.local_scored + plan.global_scored
