"""Seconds and bytes of a plan on a device, before any trial: FLOPs and tensor sizes times measured rates.

A plan is priced once: whoever decides on it, stops it, or records it reads the same figures.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_bytes, runs_prefix, weight_bytes
from tuner.planner.device import FLOAT_BYTES, TRAIN_PASSES, Rates, state_copies, unscaled_bytes
from tuner.planner.heads_terms import START_RECIPE, head_bytes, head_flops, heads_bytes, start_samples, sums_flops
from tuner.planner.tail_terms import forward_flops, kept_bytes, solving_bytes, worth_planning

#: To build the tail, its optimiser and its threads.
START_SECONDS = 0.03
#: Plans whose prices are kept.
KEPT = 512


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected cost of a plan on this device.

    Attributes:
        train_seconds: Cost of training on stored features: what exits begin with, the epochs, solving for the head.
        spend_seconds: Cost that is still to be paid: epochs, scoring, and filling of features not stored yet.
        peak_bytes: Memory above the resting process.
        storage_bytes: Size of stored features and trained weights.
    """

    train_seconds: float
    spend_seconds: float
    peak_bytes: int
    storage_bytes: int


@dataclass(frozen=True)
class Price:
    """What a plan takes on a device with these rates."""

    plan: TrialPlan
    rates: Rates

    def estimate(self, missing: int | None = None) -> Estimate:
        """Return the price where the features of so many samples are not stored yet; None where all are."""
        spend = self.trial_seconds + self.unpaid_seconds(missing or 0)
        return Estimate(self.train_seconds, spend, self.peak_bytes, self.storage_bytes)

    @cached_property
    def loops_seconds(self) -> float:
        """Seconds of the epochs of all trainings that judge the plan."""
        return sum(price(plan, self.rates).loop_seconds for plan in self.plan.trainings)

    @cached_property
    def trial_seconds(self) -> float:
        """Seconds of all trainings that judge the plan, and of their scoring."""
        return self.loops_seconds + sum(price(plan, self.rates).scoring_seconds for plan in self.plan.trainings)

    @property
    def train_seconds(self) -> float:
        """Seconds of training on stored features: filling the store is a cost of the run."""
        return self.start_seconds + self.loop_seconds

    def unpaid_seconds(self, missing: int) -> float:
        """Return the seconds to fill the features of so many samples, and to learn what exits begin with.

        Where none is missing, exits' starts are stored too.
        """
        start = self.start_seconds if missing or not self.plan.cached else 0.0
        return missing * (self.fill_seconds + self._smaller_seconds) + start

    @cached_property
    def fill_seconds(self) -> float:
        """Seconds to decode one sample and run the prefix on it."""
        rates = self.rates
        return rates.load_seconds + rates.prefix_ratio * sum(rates.forward_seconds[: self.plan.split])

    @property
    def _smaller_seconds(self) -> float:
        """Seconds of the same at the size of an exit of a smaller input."""
        return sum(price(plan, self.rates).fill_seconds for plan in self.plan.passes[1:])

    @cached_property
    def start_seconds(self) -> float:
        """Seconds to learn what exits begin with from stored features: once in a study."""
        plan, rates = self.plan, self.rates
        source, count = self._exit_source_seconds, start_samples(plan)
        once = source + sum(rates.forward_seconds[plan.cuts[-1] :]) + self._seconds_of(sums_flops(plan))
        epochs = 0 if plan.heads.ridge else START_RECIPE.epochs
        steps = epochs * math.ceil(count / START_RECIPE.batch_size) * rates.step_seconds
        return count * (once + epochs * (source + TRAIN_PASSES * self._head_seconds)) + steps

    @cached_property
    def loop_seconds(self) -> float:
        """Seconds of all epochs, of what precedes them, and of solving for the head again."""
        plan = self.plan
        tail = sum(self.rates.train_seconds[plan.split :]) + self._source_seconds if plan.trainable else 0.0
        each, once = (0.0, tail) if plan.traits.solves else (tail, 0.0)
        if plan.heads.exits:
            heads = TRAIN_PASSES * self._head_seconds
            alone = heads + self._exit_source_seconds
            each += (heads if plan.heads.joint else 0.0) + (0.0 if plan.heads.ridge else alone)
            once += alone if plan.heads.ridge else 0.0
        once += self._solving_seconds
        return self.ready_seconds + self.steps_seconds + plan.train_samples * (once + plan.recipe.epochs * each)

    @property
    def ending_seconds(self) -> float:
        """Seconds after the last epoch: of solving for the head again, and of scoring."""
        return self.plan.train_samples * self._solving_seconds + self.scoring_seconds

    @cached_property
    def ready_seconds(self) -> float:
        """Seconds before the second step: of choosing samples, a teacher's answers, tracing, a cold start."""
        plan, rates, by_cut = self.plan, self.rates, self.rates.first.seconds
        cold = START_SECONDS + by_cut[min(plan.split, len(by_cut) - 1)] if by_cut else 0.0
        forms = 2 if plan.recipe.micro_batches > 1 else 1  # micro-batches have two forms of step
        tracing = forms * rates.trace_seconds * plan.trainable if worth_planning(plan) else 0.0
        return cold + self._choosing_seconds + self._teacher_seconds + tracing

    @cached_property
    def steps_seconds(self) -> float:
        """Seconds that the steps of all epochs take whatever their samples."""
        plan = self.plan
        loops = bool(plan.trainable) + bool(plan.heads.exits)
        steps = math.ceil(plan.train_samples / plan.recipe.batch_size) * plan.recipe.micro_batches
        return plan.recipe.epochs * loops * steps * self.rates.step_seconds

    @cached_property
    def scoring_seconds(self) -> float:
        """Seconds of scoring: all samples at the end, the local ones after every epoch that may be the last."""
        plan = self.plan
        times = plan.recipe.epochs if plan.recipe.patience else 1
        samples = plan.local_scored * times + plan.global_scored
        heads = self._head_seconds + self._exit_source_seconds
        return samples * (self._tail_seconds + heads)

    @property
    def peak_bytes(self) -> int:
        """Bytes above the resting process: of training, or of filling the store where that takes more."""
        return max(self.tensor_bytes + self.library_bytes, self.least_bytes)

    @property
    def least_bytes(self) -> int:
        """Bytes of filling the store for the plan; 0 where it reads no stored features."""
        return self.rates.fill_peak_bytes if self.plan.cached and self.plan.split else 0

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of training in tensors: optimiser state, gradients, saved activations, batch, the file's copy.

        Where nothing is stored, the prefix runs in the same process.
        """
        plan = self.plan
        tail = plan.model.blocks[plan.split :]
        batch = min(plan.recipe.part_size, max(1, plan.train_samples))
        copies = state_copies(plan.recipe.optimiser) + bool(self.rates.first.library_bytes)  # nominal rates: no file
        copies += 2 * plan.traits.keeps_given  # the given tail, and its copy in the file
        state = sum(block.parameters for block in tail) * FLOAT_BYTES * copies
        inputs = 3 * batch * math.prod(tail[0].in_shape if tail else (1,)) * FLOAT_BYTES
        step, solving = kept_bytes(plan) + inputs, solving_bytes(plan)
        step = step + solving if plan.traits.solves else max(step, solving)  # solved again when the steps are over
        tail_bytes, exits_bytes = state + step, heads_bytes(plan, batch)
        if plan.heads.joint:  # they train with the tail; those in closed form are solved for when it is done
            tail_bytes += head_bytes(plan) * copies if plan.heads.ridge else exits_bytes
        return int(max(tail_bytes, exits_bytes) + self.prefix_bytes)

    @cached_property
    def prefix_bytes(self) -> int:
        """Bytes of tensors of a prefix that runs before every step; 0 where none does."""
        rates = self.rates
        if not runs_prefix(self.plan):
            return 0
        if not rates.first.library_bytes:
            return rates.fill_peak_bytes
        return max(0, rates.fill_peak_bytes - unscaled_bytes(self.plan.model) - rates.first.library_bytes[0])

    @property
    def library_bytes(self) -> int:
        """Bytes of the libraries' code and buffers that a trial's process touches."""
        by_cut = self.rates.first.library_bytes or (0,)
        cut = 0 if runs_prefix(self.plan) else min(self.plan.split, len(by_cut) - 1)
        return self.rates.scratch_bytes + by_cut[cut]

    @property
    def storage_bytes(self) -> int:
        """Bytes on disk: stored features and trained weights."""
        return feature_bytes(self.plan) + weight_bytes(self.plan)

    @cached_property
    def _tail_seconds(self) -> float:
        """Seconds to get one sample's input of the tail, and to pass it through."""
        return sum(self.rates.forward_seconds[self.plan.split :]) + self._source_seconds

    @property
    def _solving_seconds(self) -> float:
        """Seconds to pass one training sample through the tail after training, as often as that is done."""
        passes = self.plan.recipe.solve_again + 2 * self.plan.traits.keeps_given
        return passes * self._tail_seconds if self.plan.trainable else 0.0

    @property
    def _teacher_seconds(self) -> float:
        """Seconds of the given model's answers to all training samples, where a loss term reads them."""
        return self.plan.train_samples * self._tail_seconds if self.plan.has_teacher else 0.0

    @property
    def _choosing_seconds(self) -> float:
        """Seconds to get the features of all candidates for mixing in, from the store or by the prefix."""
        plan = self.plan
        if plan.data.edit is None:
            return 0.0
        read = math.prod(plan.model.blocks[plan.cuts[-1]].in_shape) * FLOAT_BYTES / self.rates.read_bytes
        return plan.pool_samples * (read if plan.cached else self.fill_seconds)

    @property
    def _source_seconds(self) -> float:
        """Seconds to get one sample's input of the tail."""
        if not self.plan.cached:
            return self.fill_seconds
        return math.prod(self.plan.source.in_shape) * FLOAT_BYTES / self.rates.read_bytes

    @cached_property
    def _exit_source_seconds(self) -> float:
        """Seconds to get one sample's inputs of all side heads; those in closed form are read one by one."""
        plan, rates = self.plan, self.rates
        if not plan.heads.exits:
            return 0.0
        deep = [exit_.block for exit_ in plan.heads.along if exit_.block > plan.split]
        runs = deep if plan.heads.ridge else [max(deep, default=0)]
        inside = sum(sum(rates.forward_seconds[plan.split : cut]) for cut in runs)
        if not plan.cached:
            return self.fill_seconds + self._smaller_seconds + inside
        cuts = {plan.split if exit_.block in deep else exit_.block for exit_ in plan.heads.along}
        return sum(math.prod(plan.model.blocks[cut].in_shape) for cut in cuts) * FLOAT_BYTES / rates.read_bytes + inside

    @cached_property
    def _head_seconds(self) -> float:
        """Seconds of all side heads' forward pass, per sample."""
        return self._seconds_of(sum(head_flops(self.plan)))

    def _seconds_of(self, flops: int) -> float:
        """Return the seconds of some FLOPs at the model's own rate."""
        return flops * sum(self.rates.forward_seconds) / max(1, forward_flops(self.plan))


@lru_cache(maxsize=KEPT)
def price(plan: TrialPlan, rates: Rates) -> Price:
    """Return what a plan takes on a device; the same object for the same plan."""
    return Price(plan, rates.at(plan.size))
