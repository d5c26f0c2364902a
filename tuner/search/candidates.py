"""The next plan to try: of a few that the sampler suggests, the one expected to bring most per second."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import optuna
from optuna.trial import TrialState

from tuner.errors import TunerError
from tuner.plan.parts import Scalar
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import Knob, Numeric, ValueSource
from tuner.results.pareto import area
from tuner.results.records import TrialRecord, eligible
from tuner.search.journal import STARTUP_TRIALS, optuna_values, sampler_of, seeded, trials_of_one_rung
from tuner.search.setting import Setting

#: Suggestions that one is chosen from.
CANDIDATES = 3
#: Starting a trial takes about so long, whatever it trains.
START_SECONDS = 0.3
#: Width of the kernel that predicts a plan's scores from those of others: knobs are scaled to [0, 1].
WIDTH = 0.25
#: Objectives whose gain is foreseen, or that the seconds stand for.
FORESEEN = frozenset({"local_accuracy", "global_accuracy", "train_seconds", "peak_bytes"})
#: Before enough trials tell, a plan may take this share of the time that is left.
FIRST_SHARE = 0.05
#: A plan of which nothing is known is expected to enlarge the front's area by so much.
UNKNOWN_GAIN = 0.02


class Candidates:
    """Chooses for one study.

    Args:
        study: In the journal.
        setting: The study's. Where it has other objectives than accuracies and costs, whose gain is not foreseen, the
            first suggestion is taken.
    """

    def __init__(self, study: optuna.Study, setting: Setting) -> None:
        self._study, self._kind, self._seed, self._setting = study, setting.sampler, setting.seed, setting
        self._count = CANDIDATES if all(one.name in FORESEEN for one in setting.objectives) else 1
        self._seen = optuna.create_study(directions=study.directions)  # in memory: what is not chosen leaves no trace
        self._copied: set[int] = set()

    def best(
        self,
        compose: Callable[[ValueSource], Composed],
        seconds: Callable[[Composed], float],
        records: Sequence[TrialRecord],
    ) -> Composed | None:
        """Return the plan to try next; None where one cannot be composed: its own trial will say why.

        Args:
            compose: Composes a plan from a source of values.
            seconds: Returns what it takes to try a plan; infinity where it was tried before.
            records: The finished trials.
        """
        new = [trial for trial in trials_of_one_rung(self._study) if trial.number not in self._copied]
        self._seen.add_trials(new)
        self._copied |= {trial.number for trial in new}
        number = len(self._study.get_trials(deepcopy=False))
        found: list[Composed] = []
        for candidate in range(self._count):
            self._seen.sampler = sampler_of(self._kind, seeded(self._seed, number, candidate))
            trial = self._seen.ask()
            try:
                found.append(compose(optuna_values(trial)))
            except (TunerError, StrategyError):
                return None
            finally:
                self._seen.tell(trial, state=TrialState.FAIL)
        scored = [record for record in records if eligible(record) and record.plan is not None]
        rung = max((record.rung for record in scored), default=0)
        alike = [record for record in scored if record.rung == rung]
        if len(alike) < STARTUP_TRIALS:
            affordable = FIRST_SHARE * self._setting.seconds_left
            new_ones = (one for one in found if math.isfinite(cost := seconds(one)) and cost <= affordable)
            return next(new_ones, None) or min(found, key=seconds)
        return max(found, key=lambda one: gain(one, alike) / (START_SECONDS + max(0.0, seconds(one))))


def gain(candidate: Composed, records: Sequence[TrialRecord]) -> float:
    """Return by how much a plan is expected to enlarge the area of (local, global) accuracy under a rung's front.

    The scores are predicted from those of plans with near knobs, by a kernel, one standard deviation upwards.

    Args:
        candidate: A plan that was not tried.
        records: Trials of one rung; at least one.
    """
    weights = np.array([math.exp(-_distance(candidate, record.knobs) / (2 * WIDTH**2)) for record in records])
    if weights.sum() < 1e-6:  # noqa: PLR2004 - nothing is near
        return UNKNOWN_GAIN
    values = np.array([[record.values.get(name, 1.0) for name in _ACCURACIES] for record in records])
    weights = weights / weights.sum()
    mean = weights @ values
    spread = np.sqrt(weights @ (values - mean) ** 2)
    hoped = dict(zip(_ACCURACIES, np.minimum(1.0, mean + spread).tolist(), strict=True))
    known = [record.values for record in records]
    return max(area([*known, hoped]) - area(known), UNKNOWN_GAIN / 10)


_ACCURACIES = ("local_accuracy", "global_accuracy")


def _distance(candidate: Composed, knobs: Mapping[str, Scalar]) -> float:
    """Return the mean squared difference of two plans' knobs; of one that a plan does not have, a half."""
    names = [name for name, knob in candidate.knobs.items() if not knob.fixed]
    if not names:
        return 0.0
    total = sum(
        _difference(candidate.knobs[name], candidate.values[name], knobs[name]) ** 2 if name in knobs else 0.5
        for name in names
    )
    return total / len(names)


def _difference(knob: Knob, a: Scalar, b: Scalar) -> float:
    if not isinstance(knob, Numeric) or isinstance(a, str) or isinstance(b, str):
        return float(a != b)
    if knob.log:
        return math.log(max(a, knob.low) / max(b, knob.low)) / math.log(knob.high / knob.low)
    return (a - b) / (knob.high - knob.low)
