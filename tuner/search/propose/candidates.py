"""A plan to vary the search by: of suggestions and variations of good plans, the one expected to bring most."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import optuna
from optuna.trial import TrialState

from tuner.arrays import Doubles
from tuner.errors import TunerError
from tuner.machine.process_memory import return_freed
from tuner.plan.parts import Scalar
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import Choice, Knob, ValueSource
from tuner.plugin.sources import preferred_values, random_values
from tuner.results.records.trial import TrialRecord, eligible, plan_of
from tuner.results.scores.pareto import front
from tuner.search.propose.lines import are_siblings, can_continue, is_head, structure_of
from tuner.search.propose.structures import EPOCHS, RATE, Admits, Compose, Structures
from tuner.search.propose.surrogate import Coordinates, Surrogate, expected_gain
from tuner.search.setting import Setting
from tuner.search.trials.compact import add_copies
from tuner.search.trials.journal import RUNG, optuna_values
from tuner.search.trials.queue import Queue
from tuner.search.trials.samplers import sampler_of
from tuner.search.trials.seeds import seeded

#: Plans that one is chosen from: suggestions of the sampler, random ones, and variations of the front's.
SUGGESTED, DRAWN, VARIED = 2, 24, 8
#: The sampler whose suggestions are weighed; those of the others are tried as they come.
WEIGHED = "tpe"
#: A variation moves a number by so much of its range, in the mean.
STRIDE = 0.15
#: Plans whose expected gain is at least this share of the largest are worth the same: the cheapest of them is tried.
ALIKE = 0.9
#: Heads alone may take this share of the trials, or of the run's time, but for the first few: they hardly differ.
HEADS_SHARE, FIRST_HEADS = 0.1, 3
#: Starting a trial takes about so long, whatever it trains.
START_SECONDS = 0.3
#: Before so many trials tell, a plan may take a share of the time that is left.
LEAST_TRIALS, FIRST_SHARE = 2, 0.05
#: Random plans that show which knobs there are.
LOOKED_AT = 64
#: Plans that may be drawn until one is new, and the best plans that may be asked whether they are within the limits.
DRAWS, TRIES = 30, 16
#: Half of the best plan's errors is the deviation of what a structure may reach that was never tried.
UNKNOWN = 0.5
#: Largest learning rates of the last block alone; deeper ones get a third, and the whole network this share of that.
MOST_RATE: Mapping[str, float] = {"adamw": 1e-2, "adam": 1e-2, "sgd": 1e-1}
DEEP_RATE = 0.3
#: Suggestions until the study that they are asked of is made anew: Optuna keeps each in memory.
MOST_ASKED = 32


class Candidates:
    """Chooses for one study.

    It weighs plans by their gain, but not where there are other objectives than accuracies and costs, whose gain is not
    foreseen: then the sampler's first suggestion is taken. ``gain`` is the largest of those that the last plan was
    chosen from, infinite before.
    """

    def __init__(self, queue: Queue, setting: Setting, compose: Compose, structures: Structures) -> None:
        self._queue, self._setting, self._compose, self._structures = queue, setting, compose, structures
        self._accuracies = [one for one in setting.weighed_objectives if one.direction == "maximise" and not one.domain]
        local = "local_accuracy" in {one.name for one in self._accuracies}
        self.weighs, self.gain = setting.sampler == WEIGHED and local and setting.foreseen, math.inf
        self._rung, self._asked, self._knobs, self._last = 0, MOST_ASKED, dict[str, Knob](), (math.inf, 0.0)
        self._surrogate: Surrogate | None = None

    def best(
        self, seconds: Callable[[Composed], float], admits: Admits, records: Sequence[TrialRecord], rung: int
    ) -> Composed | None:
        """Return the plan to try next; None where the study is to be asked, or one cannot be composed.

        ``seconds`` returns what it takes to try a plan, infinity where it was tried before; ``admits`` whether it is
        within the limits.
        """
        if self._setting.asks_study:
            return None
        if rung != self._rung:
            self._rung, self._surrogate, self._asked = rung, None, MOST_ASKED
        number = self._queue.begun
        try:
            found = self._suggested(number, SUGGESTED if self.weighs else 1, records)
            if not self.weighs:
                return found[0]
            draw = random.Random(seeded(self._queue.seed, number))
            alike = [record for record in records if record.rung == rung and eligible(record)]
            found += self._drawn(draw, DRAWN)
            found += self._varied(draw, alike) if alike else ()
            sensible = [self._structures.least(one) for one in found if self._is_sensible(one, alike)]
            new = [(one, cost) for one, cost in ((one, seconds(one)) for one in sensible) if math.isfinite(cost)]
            if not new:
                self.gain, self._last = 0.0, (0.0, math.inf)
                return next((one for one in self._drawn(draw, DRAWS) if math.isfinite(seconds(one))), found[0])
            own = dict[int, float]()
            if len(alike) < LEAST_TRIALS:  # the short ones as they come, then the others
                affordable = FIRST_SHARE * self._setting.seconds_left
                order = [one for one, _ in sorted(new, key=lambda pair: max(affordable, pair[1]))]
            else:
                gains = self._gains([one for one, _ in new], alike)
                self.gain = float(gains.max())
                own = dict(zip((id(one) for one, _ in new), gains.tolist(), strict=True))
                leaves = np.array([max(0.0, 1 - cost / self._setting.seconds_left) for _, cost in new])
                order = in_order(new, gains * leaves)  # what takes all the time leaves none to build on it
            chosen = next((one for one in order[:TRIES] if admits(one)), order[0])
            self._last = own.get(id(chosen), math.inf), next(cost for one, cost in new if one is chosen)
        except (TunerError, StrategyError):
            return None
        else:
            return chosen
        finally:  # matrices of the surrogate, which are larger from trial to trial
            return_freed()

    def gain_within(self, seconds: float) -> float:
        """Return by how much plans may enlarge the area in so much time: one as ``gain``, or all as the last one."""
        gain, takes = self._last
        return max(self.gain, gain * seconds / (START_SECONDS + takes)) if math.isfinite(seconds) else self.gain

    def enqueue_siblings(self, composed: Composed, rung: int) -> None:
        """Put the plans in the queue that share a trained one's training: with other values of a knob.

        The knob has the name of the setting that acts when training ends, and a choice of values. Checkpoints are not
        shared between processes, so neither are these.
        """
        if self._queue.is_shared:
            return
        late = [(edit.kind, name) for edit in composed.plan.shape for name in edit.traits.after_training]
        for name in (f"{composed.editors.get(kind)}.{setting}" for kind, setting in late):
            knob = composed.knobs.get(name)
            for value in knob.options if isinstance(knob, Choice) else ():
                with suppress(TunerError, StrategyError):
                    other = self._compose(preferred_values({**composed.values, name: value}))
                    if are_siblings(other.plan, composed.plan):
                        self._queue.enqueue(other, {RUNG: rung})

    def _suggested(self, number: int, count: int, records: Sequence[TrialRecord]) -> list[Composed]:
        """Return what the sampler suggests, which sees the trials of one rung."""
        if self._asked >= MOST_ASKED:  # in memory: what is not chosen leaves no trace
            self._seen, self._copied = optuna.create_study(directions=self._queue.study.directions), set[int]()
            self._asked = 0
        self._asked += count
        new = [trial for trial in self._queue.learnable(self._rung, records) if trial.number not in self._copied]
        add_copies(self._seen, new)
        self._copied |= {trial.number for trial in new}
        found = []
        for candidate in range(count):
            self._seen.sampler = sampler_of(self._setting.sampler, seeded(self._queue.seed, number, candidate))
            trial = self._seen.ask()
            try:
                found.append(self._compose(optuna_values(trial)))
            finally:
                self._seen.tell(trial, state=TrialState.FAIL)
        return found

    def _drawn(self, draw: random.Random, count: int) -> Iterator[Composed]:
        """Yield random plans, of those that can be composed."""
        for _ in range(count):
            with suppress(TunerError, StrategyError):
                yield self._compose(random_values(draw))

    def _varied(self, draw: random.Random, alike: Sequence[TrialRecord]) -> Iterator[Composed]:
        """Yield plans that differ from one of the front in a knob or two."""
        best = set(front({record.trial: record.values for record in alike}, self._accuracies))
        members, searched = [record for record in alike if record.trial in best], self._searched()
        for _ in range(VARIED):
            member = draw.choice(members)
            names = sorted(member.knobs.keys() & searched.keys())
            changed = draw.sample(names, min(len(names), draw.choice((1, 1, 2))))
            with suppress(TunerError, StrategyError):
                yield self._compose(_near(draw, member.knobs, frozenset(changed)))

    def _searched(self) -> Mapping[str, Knob]:
        """Return the knobs with more than one value, of random plans: the same in every session of a study."""
        if not self._knobs:
            drawn = self._drawn(random.Random(0), LOOKED_AT)
            self._knobs = {name: one.knobs[name] for one in drawn for name in one.searched}
        return self._knobs

    def _is_sensible(self, composed: Composed, alike: Sequence[TrialRecord]) -> bool:
        """Return whether a plan's learning rate suits its depth, and it is not one more head among many.

        Deep tails diverge at a shallow one's.
        """
        plan, knob = composed.plan, composed.knobs.get(RATE)
        if is_head(plan):
            heads = [record for record in alike if record.plan is not None and is_head(record.plan)]
            few = len(heads) < max(FIRST_HEADS, HEADS_SHARE * len(alike))
            whole = max(self._setting.limits.time_seconds or 0.0, _seconds_of(alike))
            return few or _seconds_of(heads) < HEADS_SHARE * whole
        deep = 1.0 if plan.trainable == 1 else math.pow(DEEP_RATE, plan.model.share(plan.trainable)) / 3
        most = MOST_RATE.get(plan.recipe.optimiser, 1.0) * deep
        return knob is None or knob.fixed or plan.recipe.learning_rate <= most

    def _gains(self, plans: Sequence[Composed], alike: Sequence[TrialRecord]) -> Doubles:
        """Return by how much plans are expected to enlarge the area under the front by the end, float64 [n].

        Plans are weighed as they are after as many epochs as any was trained. What is known of none of a structure is
        what the best plan of others scores, give or take half its errors; one that was tried brings at most what half
        the errors of its own best trial would.
        """
        if self._surrogate is None:
            self._surrogate = Surrogate(Coordinates(self._searched()))
        scores = np.array([[record.values[one.name] for one in self._accuracies] for record in alike])
        counts = list(plan_of(alike[0]).scored.values())[: len(self._accuracies)]
        self._surrogate.fit([record.knobs for record in alike], scores, counts)
        longest = max(int(record.knobs.get(EPOCHS, 1)) for record in alike)
        ends = [{**one.values, EPOCHS: longest} if can_continue(one.plan) else one.values for one in plans]
        mean, deviation = self._surrogate.predict(ends)
        tried = {structure_of(record.plan) for record in alike if record.plan is not None}
        strange = [structure_of(one.plan) not in tried for one in plans]
        best = scores[scores[:, 0].argmax()]
        mean[strange], deviation[strange] = best, np.maximum(deviation[strange], UNKNOWN * (1 - best))
        gains = expected_gain(np.minimum(mean, 1.0), deviation, [tuple(row) for row in scores.tolist()], 1.0)
        return np.minimum(gains, [self._structures.most(one.plan, alike) for one in plans])


def _seconds_of(records: Sequence[TrialRecord]) -> float:
    """Return for how long some trials were expected to run."""
    return sum(START_SECONDS + (one.estimate.spend_seconds if one.estimate is not None else 0.0) for one in records)


def in_order(new: Sequence[tuple[Composed, float]], gains: Doubles) -> list[Composed]:
    """Return plans, which are given with their seconds, the best first: the cheapest of those worth about the same."""
    least = ALIKE * float(gains.max())
    ranks = [
        (gain < least, -gain if gain < least else cost) for (_, cost), gain in zip(new, gains.tolist(), strict=True)
    ]
    return [new[place][0] for place in sorted(range(len(new)), key=ranks.__getitem__)]


def _near(draw: random.Random, values: Mapping[str, Scalar], changed: frozenset[str]) -> ValueSource:
    """Return a source that gives a plan's values, but for some knobs: a step away, or any value."""
    anew = random_values(draw)

    def source(knob: Knob) -> Scalar:
        value = values.get(knob.name)
        if isinstance(knob, Choice):
            return value if value in knob.options and knob.name not in changed else anew(knob)
        if value is None or isinstance(value, str):
            return anew(knob)
        if knob.name not in changed:
            return knob.typed(value)
        if draw.random() < 0.5:  # noqa: PLR2004 - as often as not
            return anew(knob)
        step = draw.gauss(0.0, STRIDE)
        return knob.typed(value * (knob.high / knob.low) ** step if knob.log else value + (knob.high - knob.low) * step)

    return source
