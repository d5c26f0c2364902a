"""Successive halving over candidates: all on a quarter of the samples, the better half on half of them, and so on.

Source: Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 2016.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.errors import BudgetError, MemoryLimitError, TunerError, first_line
from tuner.machine.awake import CLOCK
from tuner.targets import Targets
from tuner.units import format_seconds
from tuner_choose.scores import Difference, correct, interval

#: Shares of the samples that candidates are compared on, one after the other.
SHARES = (0.25, 0.5, 1.0)
#: So many are compared on the next share at least, where they cannot be told apart.
LEAST_KEPT = 2
#: Costs are other ones from this ratio on.
APART = 1.5
#: Training a deep tail for a few epochs, with the features that it needs, takes about as long as so many passes.
PASSES = 3
LATE = "the time to choose was over: give more with --time, or fewer candidates"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a candidate computed of some samples, and what it costs; see `tuner_choose.torch.passes.Passes.run`."""

    features: Array
    labels: Labels
    seconds: float
    seconds_per_sample: float
    latency_seconds: float
    bytes: int
    peak_bytes: int
    flops: int = 0


#: Lets a candidate see the samples of a range, for so many seconds.
Look = Callable[[str, int, int, float], Seen]


@dataclass(slots=True)
class Row:
    """What is known of a candidate.

    Attributes:
        name: The candidate.
        reason: Why it was left; empty while it is not.
        is_late: Whether that was for want of time.
        right: How far the answer to each sample is right that it has seen, each without that sample, float64 [n].
        earlier: The same by the number of samples that it had seen: fits of fewer samples have fewer right.
        costs: Its seconds of a prediction; FLOPs where a choice must be repeatable.
    """

    name: str
    reason: str = ""
    is_late: bool = False
    seen: list[Seen] = field(default_factory=list)
    right: Doubles = field(default_factory=lambda: np.zeros(0))
    earlier: dict[int, Doubles] = field(default_factory=dict)
    by_flops: bool = False

    @property
    def samples(self) -> int:
        """Number of samples that it has seen."""
        return sum(len(one.labels) for one in self.seen)

    @property
    def score(self) -> float:
        """Mean of `right`."""
        return float(self.right.mean())

    @property
    def latency_seconds(self) -> float:
        """Seconds of a prediction."""
        return min(one.latency_seconds for one in self.seen)

    @property
    def costs(self) -> float:
        """What decides between candidates that cannot be told apart."""
        return float(self.seen[0].flops) if self.by_flops else self.latency_seconds

    @property
    def costs_are(self) -> str:
        """What `costs` are, for people."""
        return "FLOPs" if self.by_flops else "time"

    @property
    def seconds_per_sample(self) -> float:
        """Seconds that it takes to see a sample."""
        return min(one.seconds_per_sample for one in self.seen)

    def seconds_for(self, samples: int) -> float:
        """Return about how long it takes to see further samples, opening the network included."""
        count = sum(len(one.labels) for one in self.seen)
        return sum(one.seconds for one in self.seen) / count * max(samples, count / len(self.seen))


class Halving:
    """A choice among candidates.

    Args:
        names: The candidates, at least two.
        look: Lets one see samples.
        total: Number of samples.
        classes: Number of classes that occur in them.
        outputs: Number of outputs of a head.
        targets: What a label is.
        end: Clock (`tuner.machine.awake.CLOCK`) at which the time to choose is over; infinite for no limit.
        until: Clock at which the search ends; likewise.
        samples: Number of samples that the search trains on; `total` by default.
        by_flops: Whether FLOPs stand for the time of a prediction.
    """

    def __init__(
        self,
        names: Sequence[str],
        look: Look,
        *,
        total: int,
        classes: int,
        outputs: int,
        targets: Targets,
        end: float = math.inf,
        until: float = math.inf,
        samples: int = 0,
        by_flops: bool = False,
    ) -> None:
        self.rows, self._last = [Row(name, by_flops=by_flops) for name in names], list[Row]()
        self._look, self._total, self._classes = look, total, classes
        self._outputs, self._targets, self._end = outputs, targets, end
        self._until, self._samples = until, samples or total

    @property
    def left(self) -> list[Row]:
        """Those that were not left."""
        return [row for row in self.rows if not row.reason]

    def choose(self) -> Row:
        """Compare the candidates, and return the one that is to be searched.

        It is the best of those that the time allows to train, or the first of them where the best is hardly better; of
        some that are as good, the cheapest. Where the time was over before one was seen, it is the first that may yet
        be usable.

        Raises:
            TunerError: None of them can be used.
        """
        for number, share in enumerate(SHARES):
            upto = min(self._total, max(round(share * self._total), 2 * self._classes))
            if number and (len(self.left) == 1 or not self._has_time(upto)):
                break
            self._see(upto, patient=not number)
            left = self.left
            if not left and (late := [row for row in self.rows if row.is_late]):
                late[0].reason = ""
                return late[0]
            if not left:
                reasons = "; ".join(f"{row.name}: {row.reason}" for row in self.rows)
                raise TunerError(f"none of the {len(self.rows)} candidates for the model can be used: {reasons}")
            count = min(row.samples for row in left)
            for row in left:
                features = np.concatenate([one.features for one in row.seen])[:count]
                labels = np.concatenate([one.labels for one in row.seen])[:count]
                row.right = row.earlier[count] = correct(features, labels, self._outputs, self._targets)
            if not number:
                self._leave_slow()
            if upto < self._total:
                self._halve()
        return self._pick()

    def difference(self, first: Row, second: Row) -> Difference:
        """Return by how much the first is better, on the samples that both were compared on, and fitted to."""
        count = min(len(first.right), len(second.right))
        one, other = (row.earlier.get(count, row.right) for row in (first, second))
        return Difference.of(one, other, self._targets)

    def interval(self, row: Row) -> tuple[float, float]:
        """Return the 95 % interval of a candidate's score."""
        return interval(row.right, self._targets)

    def _has_time(self, upto: int) -> bool:
        need = sum(row.seconds_for(upto - row.samples) for row in self.left)
        return CLOCK.now() + need < self._end

    def _see(self, upto: int, *, patient: bool) -> None:
        waiting = self.left
        for place, row in enumerate(waiting):
            seconds = self._end - CLOCK.now()
            if seconds <= 0 and patient and any(other.seen for other in waiting):
                row.reason, row.is_late = LATE, True
                continue
            try:
                within = max(0.0, seconds / (len(waiting) - place))
                if upto > row.samples:
                    row.seen.append(self._look(row.name, row.samples, upto, within))
            except BudgetError as error:
                if not row.seen or isinstance(error, MemoryLimitError):
                    row.is_late = not isinstance(error, MemoryLimitError)
                    row.reason = LATE if row.is_late else str(error)
            except (TunerError, RuntimeError) as error:
                row.reason = first_line(error) if isinstance(error, RuntimeError) else str(error)

    def _leave_slow(self) -> None:
        """Leave those through which not even one pass of all samples fits into what is left, but for the quickest.

        Where the time is short, a search trains on fewer samples, and the better network brings more than more epochs.
        """
        seconds = self._until - CLOCK.now()
        quickest = min(self.left, key=lambda row: row.seconds_per_sample)
        for row in self.left:
            need = row.seconds_per_sample * self._samples
            if need > seconds and row is not quickest:
                left = format_seconds(max(0.0, seconds))
                row.reason = (
                    f"one pass of all samples takes about {format_seconds(need)}, and {left} of --time are left"
                )

    def _halve(self) -> None:
        """Leave those that are worse for certain, and of the others the worse half."""
        ranked = sorted(self.left, key=lambda row: (-row.score, row.costs))
        best = ranked[0]
        level = [row for row in ranked if not self.difference(best, row).is_real]
        kept = level[: max(LEAST_KEPT, math.ceil(len(ranked) / 2))]
        # these may yet be as good: the cheapest costs little to see, and the first is what the user would take
        kept += [min(level, key=lambda row: row.costs), *(row for row in level if row is self.left[0])]
        for row in ranked:
            if row not in kept:
                row.reason = f"{self.difference(row, best)} compared with {best.name} on {len(row.right):,} samples"

    def _pick(self) -> Row:
        self._last = self.left
        first, best = self.left[0], min(self.left, key=lambda row: (-row.score, row.costs))
        if not self.difference(best, first).is_likely:  # few samples say little, and the user's order says something
            best = first
        level = [row for row in self.left if row is best or self.difference(best, row).is_small]
        picked = min(level, key=lambda row: (row.costs, -row.score))
        for row in self.left:
            if row is picked:
                continue
            row.reason = f"{self.difference(row, picked)} compared with {picked.name}"
            if row in level:
                row.reason += (
                    f": no significant gain, at {row.costs / picked.costs:.1f} × the {row.costs_are} of a prediction"
                )
            elif row.score > picked.score:
                row.reason += ": so few samples are not sure of that, and the other is named first"
        return picked

    def second(self, picked: Row, is_other: Callable[[str], bool]) -> Row | None:
        """Return the best of those that may be as good as the picked one, at other costs; None without any.

        Args:
            picked: What `choose` returned.
            is_other: Whether a candidate can be searched together with that one.
        """
        seconds = (self._until - CLOCK.now()) / (PASSES * self._samples)
        found = list[Row]()
        for row in self._last:
            if row is picked or not is_other(row.name) or self.difference(picked, row).is_real:
                continue
            ratio = row.costs / picked.costs
            if max(ratio, 1 / ratio) >= APART and row.seconds_per_sample + picked.seconds_per_sample <= seconds:
                found.append(row)
        return max(found, key=lambda row: (row.score, -row.costs), default=None)


def table(halving: Halving, picked: Row, second: Row | None = None) -> list[Mapping[str, object]]:
    """Return the candidates as a run's folder keeps them, each compared with the picked one; `second` is searched too.

    Those are on the front of which no other has a better score, on the samples that both have seen, and costs less.
    """
    scored = [row for row in halving.rows if row.seen and len(row.right)]
    gains = {row.name: halving.difference(row, picked) for row in scored if len(picked.right)}

    def is_dominated(row: Row) -> bool:
        gain, costs = gains[row.name].gain, row.costs
        others = ((gains[one.name].gain, one.costs) for one in scored)
        return any(g >= gain and c <= costs and (g, c) != (gain, costs) for g, c in others)

    rows = list[Mapping[str, object]]()
    for row in halving.rows:
        last, found = row.seen[-1] if row.seen else None, gains.get(row.name)
        low, high = halving.interval(row) if row in scored else (None, None)
        rows.append(
            {
                "candidate": row.name,
                "chosen": row is picked,
                "searched": row in (picked, second),
                "accuracy": row.score if row in scored else None,
                "low": low,
                "high": high,
                "samples": len(row.right),
                "latency_seconds": row.latency_seconds if last else None,
                "bytes": last.bytes if last else None,
                "peak_bytes": max(one.peak_bytes for one in row.seen) if last else None,
                "gain": found and found.gain,
                "gain_low": found and found.low,
                "gain_high": found and found.high,
                "costs": row.costs_are,
                "relative_costs": found and row.costs / picked.costs,
                "on_front": found is not None and not is_dominated(row),
                "reason": "" if row is second else row.reason,
            }
        )
    return rows
