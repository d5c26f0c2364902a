"""Filling the store ahead of trials: what is there, what is missing, what it costs."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BudgetError
from tuner.plan import TrialPlan
from tuner.planner import cost
from tuner.results.records import SCORED, Estimate, TrialRecord
from tuner.search.events import Listener
from tuner.search.jobs import Job
from tuner.search.peaks import Peaks
from tuner.search.supervisor import Limits, Supervisor, result
from tuner.store.store import Store
from tuner.units import said_bytes, said_seconds

if TYPE_CHECKING:
    from tuner.backends.base import Filling
    from tuner.search.study import Setting

#: Mixing in more global samples than the first trials need is paid ahead only if it takes at most this share of time.
AHEAD_SHARE = 0.25
STORAGE_SHARE = 0.9
CLOSING_SECONDS = 1.0
TIGHT_SHARE = 0.7
At = tuple[int, int, bool]  # split, bits, and whether for exits


class UnfilledError(BudgetError):
    """A limit ended a filling pass; `constraint` says which, and by how much, as a trial's record does."""

    def __init__(self, text: str, constraint: dict[str, float]) -> None:
        super().__init__(text)
        self.constraint = constraint


@dataclass(frozen=True, slots=True)
class Filled:
    """What a pass left in the store for one cut and width: everything up to a fraction of the global data."""

    alpha: float
    folders: tuple[Path, ...]


class Filler:
    """Keeps the store filled for the plans of one study.

    Attributes:
        seconds: Spent on filling so far.
        samples: That went through the prefix so far.
    """

    def __init__(self, setting: "Setting", supervisor: Supervisor, store: Store, listener: Listener) -> None:
        self._setting = setting
        self._supervisor = supervisor
        self._store = store
        self._listener = listener
        self._peaks = Peaks(setting, supervisor)
        self._filled: dict[At, Filled] = {}
        self._too_large: dict[frozenset[At], UnfilledError] = {}
        self._seconds_each: dict[int, float] = {}
        self.seconds = 0.0
        self.samples = 0

    def seconds_each(self, plan: TrialPlan) -> float:
        """Return the seconds to fill one record at the plan's cut: as filled, or as measured before."""
        return self._seconds_each.get(plan.cuts[-1], cost.fill_seconds(plan, self._setting.rates))

    def missing(self, plan: TrialPlan) -> int:
        """Return how many samples this study has not filled yet for the plan."""
        if not plan.cached:
            return 0
        known = [self._filled[at] for at in _ats(plan) if at in self._filled]
        gone = not all(folder.exists() for one in known for folder in one.folders)  # evicted for another plan's sake
        if gone or len(known) < len(_ats(plan)):
            return plan.train_samples + plan.task.local_val + plan.task.global_val
        filled = replace(plan, data=replace(plan.data, alpha=min(one.alpha for one in known)))
        return max(0, plan.global_samples - filled.global_samples)

    def estimate(self, plan: TrialPlan, records: Sequence[TrialRecord]) -> Estimate:
        """Return what a plan will cost, corrected by what finished trials cost beside their estimates.

        Where ``--memory`` is given, the peak is the planner's if the planned executor will run the steps, and that of
        its start if the tail changes while it trains: it then keeps to the limit itself.
        """
        from tuner.search.study import learned

        plain = cost.estimate(plan, self._setting.rates, self.missing(plan))
        if self._setting.deterministic:
            return plain
        alike = [one for one in records if one.plan is not None and _kind(one.plan) == _kind(plan)]
        worth = cost.worth_planning(plan)
        same = [one for one in alike if one.plan is not None and cost.worth_planning(one.plan) == worth]
        rough = cost.corrected(plain, learned(alike, self._seconds), learned(same, self._bytes))
        peak = self._peaks.expected(plan, records)
        return rough if peak is None else replace(rough, peak_bytes=peak)

    def prepare(self, plans: Iterable[TrialPlan]) -> None:
        """Fill every cut the study may ask for, in one pass, as far as cap and time allow; the first plans first.

        Raises:
            BudgetError: A limit leaves nothing filled.
        """
        known = [plan for plan in plans if plan.cached]
        if not known:
            return
        first_alpha, most_alpha = known[0].data.alpha, max(plan.data.alpha for plan in known)
        left = self._left()
        ahead = replace(known[0], data=replace(known[0].data, alpha=most_alpha))
        alpha = most_alpha if self._pass_seconds([ahead]) <= AHEAD_SHARE * left else first_alpha
        chosen: set[At] = set()
        filled: list[TrialPlan] = []
        stored = 0
        for plan in known:
            bits = max(cost.CODED_BITS, plan.cache.bits)
            wide = replace(plan, data=replace(plan.data, alpha=alpha), cache=replace(plan.cache, bits=bits))
            needs = cost.feature_bytes(wide)
            cap = self._store.cap_bytes
            if not chosen.issuperset(_ats(plan)) and (cap is None or stored + needs <= STORAGE_SHARE * cap):
                chosen.update(_ats(plan))
                filled.append(wide)
                stored += needs
        if not filled:
            return
        if self._pass_seconds(filled) > TIGHT_SHARE * left:
            filled = filled[:1]
            self._refuse_if_hopeless(filled, left)
        self._fill_apart(filled)

    def _fill_apart(self, plans: Sequence[TrialPlan]) -> None:
        """Fill what the plans need, in as many passes as memory asks for; a plan that does not fit hears so later."""
        plans = [plan for plan in plans if self.missing(plan)]
        try:
            self.fill(plans)
        except UnfilledError as error:
            if "memory" in error.constraint and len(plans) > 1:
                self._fill_apart(plans[: len(plans) // 2])
                self._fill_apart(plans[len(plans) // 2 :])
            elif not self._filled:
                raise

    def fill(self, plans: Sequence[TrialPlan]) -> None:
        """Fill what the plans need and this study has not filled yet.

        Raises:
            UnfilledError: The time was up, or memory too small, before it was done; what was filled stays. A pass that
                memory once was too small for is not begun again.
            TunerError: A sample or the model cannot be used.
        """
        plans = [plan for plan in plans if self.missing(plan)]
        if not plans:
            return
        asked = frozenset[At]().union(*map(_ats, plans))
        for known, error in self._too_large.items():
            if known <= asked:
                raise UnfilledError(str(error), error.constraint)
        end = self._setting.end
        limits = Limits(
            None if end is None else end - CLOSING_SECONDS,
            None if end is None else end - CLOSING_SECONDS / 2,
            self._setting.limits.memory_bytes,
        )
        started = time.monotonic()
        job = Job(
            plans[0].runtime.backend,
            "fill",
            {"plans": plans, "store": self._store},
            reports=True,
            frees=limits.memory_bytes is not None,
        )
        ended = self._supervisor.run(job, limits, self._progress)
        self.seconds += time.monotonic() - started
        if ended.verdict == "interrupted":
            raise KeyboardInterrupt
        if ended.verdict == "memory" and limits.memory_bytes:
            self._too_large[asked] = UnfilledError(
                f"--memory {said_bytes(limits.memory_bytes)} is too small to run the frozen prefix, which took "
                f"{said_bytes(ended.most_bytes)}: give more",
                {"memory": math.log(ended.most_bytes / limits.memory_bytes)},
            )
            raise self._too_large[asked]
        if ended.verdict == "deadline" or (ended.verdict == "result" and ended.value.stopped):
            reason = "--time was up while features were computed; they are kept: give more time, or --resume"
            raise UnfilledError(reason, {"time": 1.0})
        self._note(plans, result("the frozen prefix", ended))

    def _note(self, plans: Sequence[TrialPlan], filling: "Filling") -> None:
        self.samples += filling.records
        for plan in plans:
            for at in _ats(plan):
                folders = filling.folders.get(at[:2])
                if folders is not None:
                    alpha = max(plan.data.alpha, self._filled[at].alpha if at in self._filled else 0.0)
                    self._filled[at] = Filled(alpha, folders)
        for split, seconds in filling.seconds_per_sample.items():
            self._seconds_each.setdefault(split, seconds)

    def _progress(self, progress: Mapping[str, Any]) -> None:
        if "warning" in progress:
            self._listener.say(f"warning: {progress['warning']}")
        elif "filled" in progress:
            self._listener.step("features", progress["filled"], progress["of"])

    def _seconds(self, record: TrialRecord) -> tuple[float, float] | None:
        """Return measured and expected seconds."""
        if record.state not in SCORED or record.plan is None:
            return None
        recipe = replace(
            record.plan.recipe, epochs=len(record.epochs) or record.plan.recipe.epochs
        )  # it may have stopped
        return record.values["train_seconds"], cost.train_seconds(
            replace(record.plan, recipe=recipe), self._setting.rates
        )

    def _bytes(self, record: TrialRecord) -> tuple[float, float] | None:
        """Return measured and expected peak bytes."""
        if record.state not in SCORED or record.plan is None:
            return None
        return record.values["peak_bytes"], float(cost.peak_bytes(record.plan, self._setting.rates))

    def _left(self) -> float:
        return math.inf if self._setting.end is None else self._setting.end - time.monotonic()

    def _pass_seconds(self, plans: Sequence[TrialPlan]) -> float:
        return max(self.missing(plan) * cost.fill_seconds(plan, self._setting.rates) for plan in plans)

    def _refuse_if_hopeless(self, plans: Sequence[TrialPlan], left: float) -> None:
        """Look at what the store really lacks, and how fast the device is now, before saying that time is too short."""
        from tuner.search.rates import kept

        runtime = plans[0].runtime
        lacking = int(self._supervisor.call(runtime.backend, "missing", {"plans": plans, "store": self._store}))
        rates = self._setting.rates
        if lacking * cost.fill_seconds(plans[0], rates) > left and not self._setting.deterministic:
            rates = self._supervisor.call(runtime.backend, "measure", {"threads": runtime.threads})
            kept(runtime.backend, self._setting.model, runtime.threads, rates)
            left = self._left()
        needs = lacking * max(cost.fill_seconds(plan, rates) for plan in plans)
        if needs > left:
            raise BudgetError(
                f"--time is too small for one trial: {said_seconds(left)} are left, but computing the features of "
                f"{lacking:,} samples takes about {said_seconds(needs)}: give at least {said_seconds(2 * needs + 10)}"
            )


def _ats(plan: TrialPlan) -> set[At]:
    """Return what the prefix pass writes for a plan: (split, bits), and with exits their calibration samples too."""
    plain = {(*at, False) for at in cost.records(plan)}
    return plain | {(*at, True) for at in cost.records(plan)} if plan.heads.exits else plain


def _kind(plan: TrialPlan) -> tuple[str, bool, bool]:
    """Return what tells plans apart whose costs are not learned from each other: who runs them, on what, growing."""
    return plan.runtime.backend, plan.cached, bool(plan.shape)
