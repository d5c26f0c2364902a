"""Plans of the strategies that take part; a strategy or an optimiser that repeats an error takes no further part."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tuner.plan.parts import SHARED_STAGES
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.host import Host
from tuner.plugin.knobs import ValueSource
from tuner.plugin.load.calls import CALL_SECONDS
from tuner.plugin.sources import preferred_values
from tuner.search.admission import runnable
from tuner.search.estimate.forecast import with_memory_limit
from tuner.search.setting import Setting

#: A strategy that fails so often leaves the study.
MOST_FAILURES = 3


class Strikes:
    """Counts for one study; ``say`` is called with one line when a strategy or an optimiser takes no further part."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.barred: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._say = say

    def count_error(self, error: StrategyError, *, tried: bool) -> None:
        """Count an error in composing a plan: one that costs seconds anywhere, others if it was to be tried."""
        if error.ends is not tried:
            self.count(error.strategy, str(error))

    def count_fault(self, kind: str, reason: str, composed: Composed) -> None:
        """Count an error of what a plugin made of a plan: an edit or a loss term, by its kind, or an optimiser."""
        if kind in composed.editors:
            self.count(composed.editors[kind], reason)
        elif kind == composed.plan.recipe.optimiser:
            self.count(kind, reason, "optimiser")

    def count(self, name: str, reason: str, what: str = "strategy") -> None:
        """Count an error of a strategy, or of an optimiser that a plugin adds."""
        self._counts[name] += 1
        if self._counts[name] >= MOST_FAILURES and name not in self.barred:
            self.barred.add(name)
            self._say(f"{reason}; {what} {name!r} failed {MOST_FAILURES} times and takes no further part")


class Composer:
    """Composes the plans of one study, of the strategies that take part.

    ``avoidable`` returns why a backend cannot carry a plan out, or None; see `runnable`.
    """

    def __init__(
        self, setting: Setting, host: Host, strikes: Strikes, avoidable: Callable[[TrialPlan], str | None]
    ) -> None:
        self._setting, self._host, self._strikes, self._avoidable = setting, host, strikes, avoidable

    def __call__(self, source: ValueSource) -> Composed:
        """Return the plan of some values of knobs; TunerError or StrategyError where there is none."""
        shared = {one.name for one in self._setting.strategies if one.stage in SHARED_STAGES}
        try:
            composed = self._without(source)
            again = preferred_values(composed.values)
            composed = runnable(composed, lambda *names: self._without(again, *names), shared, self._avoidable)
        except StrategyError as error:
            self._strikes.count_error(error, tried=False)
            raise
        plan = with_memory_limit(composed.plan, self._setting)
        data = replace(plan.data, folds=self._setting.folds)
        return replace(composed, plan=replace(plan, data=data))

    def _without(self, source: ValueSource, *names: str) -> Composed:
        setting, barred = self._setting, {*self._strikes.barred, *names}
        about = setting.wanted, barred, self._host.calls.within(CALL_SECONDS)
        return compose(setting.strategies, source, setting.model, setting.task, *about)
