"""Structures: which cuts are tried, which trainings are continued, and what the rest of the time may bring.

The anchors that train are a ladder, tried from the cheap end at the least training that says something.
A plan is weighed by what it may bring, not by that per second: a head that is solved in no time would beat every tail
(Lee et al. 2020, "Cost-aware Bayesian optimization").
"""

import math
from collections.abc import Callable, Mapping, Sequence

from tuner.errors import PlanError
from tuner.plan.parts import Scalar
from tuner.plan.trial import TrialPlan
from tuner.planner.price import price
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.knobs import Choice, ValueSource
from tuner.plugin.sources import preferred_values
from tuner.results.records.trial import TrialRecord, eligible, plan_of
from tuner.results.scores.pareto import area
from tuner.search.propose.lines import AT_BEST, Line, can_continue, is_head, is_lengthened, line_of, structure_of
from tuner.search.setting import Setting

EPOCHS, RATE = "recipe.epochs", "recipe.learning_rate"
#: Fewer steps of training say nothing of a structure; nor does one epoch, but for a long one.
LEAST_STEPS, LEAST_EPOCHS, LONG_EPOCH = 64, 2, 128
#: Shares of the time that is left which may be taken by the least training of a structure, by that of all that are not
#: tried yet, and by a line that is continued.
CLIMB_SHARE, LADDER_SHARE, CONTINUE_SHARE = 0.5, 0.7, 0.8
#: Largest share of the time left that extra known samples may take, which a head mixes in beyond those of the head with
#: fewest: such heads are rarely better. A head that takes at most so many seconds is tried in any case.
MORE_SHARE, MORE_SECONDS = 0.05, 2.0
#: Of the tails with at most this share of the network's FLOPs, the deepest may take as much of the time as a line that
#: is continued, where there is none for a deeper one. The least training of a deeper one may take this share of the
#: time: it pays where it can then be trained four times as long (clothing, 7 blocks: 77, 83, 88 % by 2, 4, 8 epochs).
PAYS, DEEP_SHARE = 0.4, 0.2
#: A line that twice longer training left as it was is not continued, nor one that would grow by less than a quarter.
LEAST_GROWTH = 1.25
#: Largest learning rate of a tail whose model knows classes already, to begin with (clothing, the last 4 blocks, two
#: epochs: at 1e-4 the user's classes have 76.7 % and the known ones 58.4, at 2.5e-4 79.1 and 50.4; untouched 53.1).
KEEPING = 1.5e-4
#: Heads that are tried before the cheapest tail; the others come after it.
FIRST_HEADS = 2
#: A limit on forgetting from which on it is allowed.
CARELESS = 0.5
#: The best training is tried at its learning rate divided and multiplied by this, until both neighbours are worse; a
#: rate within the smaller factor of one that was tried is no other.
OTHER_RATE, SAME_RATE = 2.5, 1.5
#: The constraint of a trial whose loss rose: it says something of its learning rate, and nothing of its depth.
DIVERGED = "diverged"
#: A training that diverged is tried again at this share of its learning rate, so often.
SLOWER, RETRIES = 1 / 3, 2

#: Composes a plan from a source of values; says whether it is within the limits.
Compose = Callable[[ValueSource], Composed]
Admits = Callable[[Composed], bool]


def _always(_composed: Composed) -> bool:
    return True


class Structures:
    """Decides for one study.

    ``seconds`` returns what a plan takes on a rung now, infinity where it was tried there; ``least_known`` the global
    accuracy that the pick asks for on a rung.
    """

    def __init__(
        self,
        setting: Setting,
        compose: Compose,
        seconds: Callable[[Composed, int], float],
        least_known: Callable[[int], float],
    ) -> None:
        self._setting, self._compose, self._seconds, self._least_known = setting, compose, seconds, least_known
        self.anchors: tuple[Composed, ...] = ()
        self._lines: dict[int, str] = {}

    def begin(self, first: Sequence[Composed]) -> None:
        """Take the study's first plans; they are tried from the cheap end.

        Where the model knows classes already, at a lower learning rate: it decides how much of them is forgotten. Where
        that is allowed, without known samples: on one person's muscle signals it gives 91.8 % in the place of 88.5. The
        heads are then tried with them too: of one speaker's digits, with few sounds, it gives 93.3 % instead of 90.8.
        """
        rates, forgetting = self._setting.rates, self._setting.limits.forgetting
        if self._setting.task.global_per_class:
            is_careful = forgetting is None or forgetting < CARELESS
            alone = [self._slowly(composed) if is_careful else self._alone(composed) for composed in first]
            first = alone + [one for one in first if is_head(one.plan) and one not in alone and not is_careful]
        solved = {one.plan.size for one in first if one.plan.traits.solves}
        first = [one for one in first if one.plan.traits.solves or not is_head(one.plan) or one.plan.size not in solved]
        heads, tails = ([one for one in first if is_head(one.plan) is wanted] for wanted in (True, False))
        tails = sorted(map(self.least, tails), key=lambda one: price(one.plan, rates).trial_seconds)
        heads = [self.least(head) for head in heads]
        first, rest = heads[:FIRST_HEADS], heads[FIRST_HEADS:]
        self.anchors = (*first, *tails[:1], *rest, *tails[1:])  # of three trials one trains

    def _slowly(self, composed: Composed) -> Composed:
        """Return a plan at the rate of a tail that is not to forget; as it is where it trains nothing, or may."""
        knob, traits = composed.knobs.get(RATE), composed.plan.traits
        if traits.solves or traits.keeps_given or knob is None or knob.fixed:
            return composed
        slower = min(KEEPING, composed.plan.recipe.learning_rate)
        return self._with(composed.values, {RATE: slower}) or composed

    def _alone(self, composed: Composed) -> Composed:
        """Return a plan that mixes no known samples in; as it is where no knob leaves them out."""
        if composed.plan.data.alpha:
            for knob in composed.knobs.values():
                if not isinstance(knob, Choice) and not knob.fixed and knob.low == 0:
                    alone = self._with(composed.values, {knob.name: knob.low})
                    if alone is not None and not alone.plan.data.alpha:
                        return alone
        return composed

    def least(self, composed: Composed) -> Composed:
        """Return a plan at the least training that says something, where its training can be continued."""
        return least_training(composed, self._compose)

    def next(self, records: Sequence[TrialRecord], rung: int, left: float) -> Composed | None:
        """Return the plan to try next: a slower one of a training that diverged, or the next anchor of the ladder."""
        return self._slower(records, rung, left) or next(iter(self._untried(records, rung, left)), None)

    def promotable(self, records: Sequence[TrialRecord], rung: int, left: float) -> Sequence[TrialRecord]:
        """Return the trials whose plans may be promoted: no heads until a tail was tried on a rung, where one can be.

        Where computing features is slow, more samples for a head take the time in which a tail learns (clothing, a
        minute on one core, MobileNetV2: a head has 85 %; a tail that half of the photos trained, refitted on all, 89).
        Without a limit on the time, or with one on the trials, heads do not wait.
        """
        tried = [one.plan for one in records if one.plan is not None and one.rung == rung]
        if self._setting.limits.trials is not None or not math.isfinite(left) or not all(map(is_head, tried)):
            return records
        waits = any(not is_head(one.plan) for one in self._untried(records, rung, left))
        return [one for one in records if not (waits and one.plan is not None and is_head(one.plan))]

    def choose(
        self, records: Sequence[TrialRecord], rung: int, left: float, admits: Admits, least: float = 0.0
    ) -> tuple[Composed | None, Composed | None]:
        """Return the plan to try next, None where plans are to be varied; and what to try where those bring nothing.

        The ladder of structures comes first; then lines are continued for as long as that took. From then on plans are
        varied for a third of the time, and for all of it if no line can add more than ``least`` to the area. Every
        second variation is of the best training's learning rate.
        """
        if (next_ := self.next(records, rung, left)) is not None:
            return next_, None
        longer = self.longer(records, rung, left, admits, least)
        for_first, for_longer, for_varied = self.tried_for(records, rung)
        if longer is not None and for_longer <= for_first + 2 * for_varied:
            return longer, None
        return (self.other_rate(records, rung, left, admits) if len(records) % 2 else None), longer

    def other_rate(
        self, records: Sequence[TrialRecord], rung: int, left: float, admits: Admits = _always
    ) -> Composed | None:
        """Return the best training at another learning rate, as long as it trained at first; None where all are tried.

        A range of rates that suits one structure says little of another, so that a model of all of them misses it.
        """
        lines = self.lines(_known_of(records, rung))
        best = max(lines, key=lambda one: _best(one.records).get("local_accuracy", 0.0), default=None)
        if best is None:
            return None
        rate, structure = plan_of(best.last).recipe.learning_rate, structure_of(plan_of(best.last))
        tried = [one.plan.recipe.learning_rate for one in records
                 if one.plan is not None and one.rung == rung and structure_of(one.plan) == structure]  # fmt: skip
        for other in (rate / OTHER_RATE, rate * OTHER_RATE):
            composed = self._with(best.records[0].knobs, {RATE: other})
            if composed is None or any(max(one, other) / min(one, other) < SAME_RATE for one in tried):
                continue
            is_as_asked = math.isclose(composed.plan.recipe.learning_rate, other, rel_tol=0.1)
            if is_as_asked and self._seconds(composed, rung) <= CLIMB_SHARE * left and admits(composed):
                return composed
        return None

    def longer(
        self, records: Sequence[TrialRecord], rung: int, left: float, admits: Admits = _always, least: float = 0.0
    ) -> Composed | None:
        """Return the line to continue: the one that is expected to add most; None where none may add more than `least`.

        One that forgets more than the pick allows, by more than a standard error, comes after all others.
        """
        here, allowed = _known_of(records, rung), self._least_known(rung)
        found = list[tuple[bool, float, Composed]]()
        for line in self.lines(here):
            if (one := self._longer(line, here, rung, left, least)) is not None:
                (composed, gain), kept = one, line.last.values.get("global_accuracy", 1.0)
                error = math.sqrt(kept * (1 - kept) / max(1, plan_of(line.last).task.global_val))
                found.append((gain > 0 and kept >= allowed - error, gain, composed))
        best = sorted(found, key=lambda one: one[:2], reverse=True)
        return next((composed for *_, composed in best if admits(composed)), None)

    def hope(self, records: Sequence[TrialRecord], rung: int, left: float, admits: Admits = _always) -> float:
        """Return by how much the area under the front may grow at best: by untried anchors, by longer training."""
        here = _known_of(records, rung)
        best = _best(here)
        untried = self._untried(records, rung, left) or self.other_rate(records, rung, left, admits)
        gains = [self._gain(here, _fewer_errors(best, AT_BEST))] if untried and best else []
        for line in self.lines(here):
            longer, _ = self._longer(line, here, rung, left) or (None, 0.0)
            if longer is not None and admits(longer):
                doublings, values = math.log2(longer.plan.recipe.epochs / line.epochs), line.last.values
                gains.append(self._gain(here, _fewer_errors(values, AT_BEST**doublings) | _best_global(best, values)))
        return max(gains, default=0.0) if here else math.inf

    def most(self, plan: TrialPlan, here: Sequence[TrialRecord]) -> float:
        """Return by how much a plan may enlarge the area under the front at best; infinity where that is not known.

        A structure that was tried may lose half of the errors that its best trial has left, and the less the more often
        it was tried: the square root of that after two trials, the tenth root after ten.
        """
        structure = structure_of(plan)
        tried = [one for one in here if one.plan is not None and structure_of(one.plan) == structure]
        alike = _best(tried)
        if not alike:
            return math.inf
        known = max(here, key=lambda one: one.values.get("global_accuracy", 0.0)).values
        return self._gain(here, _fewer_errors(alike, AT_BEST ** (1 / len(tried))) | _best_global(known, alike))

    def lines(self, records: Sequence[TrialRecord]) -> list[Line]:
        """Return the lines of trials on one rung whose training can be continued."""
        found: dict[str, list[TrialRecord]] = {}
        for record in records:
            if record.plan is not None and is_lengthened(record.plan):
                if record.trial not in self._lines:
                    self._lines[record.trial] = line_of(record.plan)
                found.setdefault(self._lines[record.trial], []).append(record)
        return [Line(tuple(sorted(each, key=lambda one: plan_of(one).recipe.epochs))) for each in found.values()]

    def tried_for(self, records: Sequence[TrialRecord], rung: int) -> tuple[float, float, float]:
        """Return for how many seconds anchors were tried on a rung, lines continued, and plans varied, as expected.

        It follows from the records alone: a study that is resumed goes on as it would have.
        """
        here = [one for one in records if one.rung == rung and one.state != "rejected" and one.same_as is None]
        longer = {record.trial for line in self.lines(here) for record in line.continued}
        first, seconds = [_without_epochs(one.values) for one in self.anchors], [0.0, 0.0, 0.0]
        for record in here:
            if record.estimate is not None and record.promoted is None and record.prior is None:
                kind = 1 if record.trial in longer else 0 if _without_epochs(record.knobs) in first else 2
                seconds[kind] += record.estimate.spend_seconds
        return seconds[0], seconds[1], seconds[2]

    def _untried(self, records: Sequence[TrialRecord], rung: int, left: float) -> list[Composed]:
        """Return the anchors whose structure was not tried on a rung, and for which there is time, the cheapest first.

        Where there is no time for all, the deepest that there is time for comes first after the heads, if need be for
        fewer epochs: shallow ones bring less, and on a busy machine each may take longer than was foreseen.
        """
        ended = [one for one in records if one.state != "killed" and not ({DIVERGED, "time"} & one.constraint.keys())]
        plans = [one.plan for one in ended if one.plan and one.rung == rung]
        tried, heads = set(map(structure_of, plans)), {plan.line() for plan in plans if is_head(plan)}

        def is_new(plan: TrialPlan) -> bool:
            return plan.line() not in heads if is_head(plan) else structure_of(plan) not in tried

        untried = [one for one in self.anchors if is_new(one.plan)]
        seconds = [(one, takes) for one in untried if math.isfinite(takes := self._seconds(one, rung))]
        most = max(MORE_SECONDS, MORE_SHARE * left)
        seconds = [(one, takes) for one, takes in seconds if min(takes, self._for_more(one.plan)) <= most]
        filling = min((takes for one, takes in seconds if is_head(one.plan)), default=0.0)  # it is paid once
        chosen, total = list[Composed](), filling
        for one, takes in reversed(seconds):
            is_deep = one.plan.model.share(one.plan.trainable) > PAYS
            plan, cost = self._shorter(one, takes, rung, left) if not chosen and not is_deep else (one, takes)
            pays = not chosen and not is_deep and cost <= CONTINUE_SHARE * left
            share = DEEP_SHARE if is_deep else CLIMB_SHARE
            if pays or (takes <= share * left and total + takes - filling <= LADDER_SHARE * left):
                chosen, total = [plan, *chosen], total + cost - filling
        if len(chosen) == len(seconds):
            return chosen
        return sorted(chosen, key=lambda one: (not is_head(one.plan), -one.plan.trainable))

    def _for_more(self, plan: TrialPlan) -> float:
        """Return the seconds for features of a head's extra samples, and to solve for it with them; 0 for a tail.

        Extra are those beyond the samples of the head of its size with fewest.
        """
        if not is_head(plan):
            return 0.0
        alike = [one.plan for one in self.anchors if is_head(one.plan) and one.plan.size == plan.size]
        least = min(alike, key=lambda one: one.pool_samples)
        own, other = (price(one, self._setting.rates) for one in (plan, least))
        return (plan.pool_samples - least.pool_samples) * own.fill_seconds + own.loop_seconds - other.loop_seconds

    def _shorter(self, composed: Composed, takes: float, rung: int, left: float) -> tuple[Composed, float]:
        """Return an anchor for as many epochs as there is time for, at least two, and its seconds."""
        epochs = int(composed.plan.recipe.epochs * min(1.0, CONTINUE_SHARE * left / takes)) if takes > 0 else 0
        is_shorter = LEAST_EPOCHS <= epochs < composed.plan.recipe.epochs and can_continue(composed.plan)
        shorter = self._with(composed.values, {EPOCHS: epochs}) if is_shorter else None
        return (composed, takes) if shorter is None else (shorter, self._seconds(shorter, rung))

    def _slower(self, records: Sequence[TrialRecord], rung: int, left: float) -> Composed | None:
        """Return a plan whose training diverged, at a lower learning rate; None where there is none left to try."""
        for record in records:
            if record.plan is None or record.rung != rung or DIVERGED not in record.constraint:
                continue
            begun = [one for one in records if one.plan and one.rung == rung and DIVERGED in one.constraint]
            again = sum(structure_of(plan_of(one)) == structure_of(record.plan) for one in begun)
            slower = self._with(record.knobs, {RATE: SLOWER * record.plan.recipe.learning_rate})
            if slower is None or again > RETRIES or slower.plan.recipe == record.plan.recipe:
                continue
            takes = self._seconds(slower, rung)
            if math.isfinite(takes) and takes <= CLIMB_SHARE * left:
                return slower
        return None

    def _longer(
        self, line: Line, here: Sequence[TrialRecord], rung: int, left: float, least: float = 0.0
    ) -> tuple[Composed, float] | None:
        """Return a line's continuation, twice as long where there is time for that, and by how much it may add.

        None if that is at most ``least`` even if every doubling of its epochs, and one more, halves the errors.
        """
        if line.stalled > 1 or line.last.state == "stopped":
            return None
        epochs, plan = 2 * line.epochs, plan_of(line.last)
        longer = self._with(line.last.knobs, {EPOCHS: epochs})
        if longer is None or line_of(longer.plan) != line_of(plan) or not can_continue(longer.plan):
            return None
        if not math.isfinite(takes := self._seconds(longer, rung)):
            return None
        if takes > CONTINUE_SHARE * left:
            epochs = line.epochs + int(line.epochs * CONTINUE_SHARE * left / takes)
            longer = self._with(line.last.knobs, {EPOCHS: epochs})
        if longer is None or longer.plan.recipe.epochs < LEAST_GROWTH * line.epochs:
            return None
        doublings, values = math.log2(longer.plan.recipe.epochs / line.epochs), line.last.values
        most = _fewer_errors(values, math.pow(AT_BEST, doublings + 1)) | _best_global(_best(here), values)
        if self._gain(here, most) <= least:
            return None
        return longer, self._gain(here, _fewer_errors(values, math.pow(line.pace, doublings)))

    def _gain(self, records: Sequence[TrialRecord], values: Mapping[str, float]) -> float:
        """Return by how much a trial with some values would enlarge the area under the front of others."""
        own = [self._setting.weighed(record.values) for record in records]
        return area([*own, self._setting.weighed(values)]) - area(own)

    def _with(self, values: Mapping[str, Scalar], changed: Mapping[str, Scalar]) -> Composed | None:
        return _changed(self._compose, values, changed)


def least_training(composed: Composed, compose: Compose) -> Composed:
    """Return a plan at the least training that says something, where its training can be continued."""
    knob = composed.knobs.get(EPOCHS)
    if knob is None or knob.fixed or not can_continue(composed.plan):
        return composed
    steps = math.ceil(composed.plan.train_samples / composed.plan.recipe.batch_size)
    least = 1 if steps >= LONG_EPOCH else max(LEAST_EPOCHS, math.ceil(LEAST_STEPS / steps))
    return _changed(compose, composed.values, {EPOCHS: least}) or composed


def _changed(compose: Compose, values: Mapping[str, Scalar], changed: Mapping[str, Scalar]) -> Composed | None:
    """Return a plan with some values changed; None where it cannot be composed."""
    try:
        return compose(preferred_values({**values, **changed}))
    except (PlanError, StrategyError):
        return None


def _without_epochs(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in values.items() if name != EPOCHS}


def _known_of(records: Sequence[TrialRecord], rung: int) -> list[TrialRecord]:
    """Return the trials of a rung that are within every limit."""
    return [record for record in records if record.rung == rung and eligible(record) and record.plan]


def _best(records: Sequence[TrialRecord]) -> Mapping[str, float]:
    return max((one.values for one in records), key=lambda one: one.get("local_accuracy", 0.0), default={})


def _best_global(best: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Return the global accuracy that longer training may reach: that of the best local one where it is higher."""
    both = [one["global_accuracy"] for one in (best, values) if "global_accuracy" in one]
    return {"global_accuracy": max(both)} if both else {}


def _fewer_errors(values: Mapping[str, float], share: float) -> dict[str, float]:
    """Return scores with a share of the local errors left."""
    return {**values, "local_accuracy": 1.0 - (1.0 - values.get("local_accuracy", 0.0)) * share}
