"""The setting of a study that is not run."""

from pathlib import Path

from tests.plan.plans import PLAN
from tuner.planner.device import nominal
from tuner.results.records.config import Budget
from tuner.results.scores.objectives import OBJECTIVES
from tuner.search.setting import Setting

ACCURACIES = OBJECTIVES[:2]


def setting(limits: Budget = Budget(), end: float | None = None, *, deterministic: bool = True) -> Setting:  # noqa: B008 - frozen
    """Return a setting with two objectives."""
    rates = nominal(PLAN.model)
    return Setting([], ACCURACIES, {}, "tpe", 0, deterministic, PLAN.model, PLAN.task, rates, limits, end, Path())
