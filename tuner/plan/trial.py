"""A trial as frozen data: what it trains, on which samples, from which features, and how.

Strategies edit a plan, a backend carries it out, and a bundle exports the same object as ``plan.toml``.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tuner.augment.operations import active_operations
from tuner.errors import PlanError
from tuner.plan.heads import HeadsPlan, effective_heads, head_rules
from tuner.plan.info import FORBID, BlockInfo, ModelInfo, TaskInfo, per_class_counts, share_of
from tuner.plan.parts import (
    CachePlan,
    DataPlan,
    EditTraits,
    LossTerm,
    RecipePlan,
    RuntimePlan,
    Stage,
    TailEdit,
)
from tuner.plan.rules import effective_recipe, effective_runtime, recipe_rules, runtime_rules
from tuner.plan.settings import settings_of

#: Widths of a stored value, in bits.
STORED_BITS = (32, 16, 8, 4, 2, 1)


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Everything that is decided about one trial.

    Attributes:
        model: Model that is cut and trained.
        task: Task in numbers.
        data: Global data that is mixed in.
        split: Cut: blocks ``[0, split)`` are frozen, blocks ``[split, num_blocks)`` are the tail, which trains.
        shape: Edits of the tail, in the order they are made.
        heads: Side heads.
        loss: Terms that are added to the tail's loss.
        cache: How the outputs of the frozen blocks are stored.
        recipe: How the tail trains.
        runtime: What carries the plan out.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    model: ModelInfo
    task: TaskInfo
    data: DataPlan = field(default_factory=DataPlan)
    split: int = 0
    shape: tuple[TailEdit, ...] = ()
    heads: HeadsPlan = field(default_factory=HeadsPlan)
    loss: tuple[LossTerm, ...] = ()
    cache: CachePlan = field(default_factory=CachePlan)
    recipe: RecipePlan = field(default_factory=RecipePlan)
    runtime: RuntimePlan = field(default_factory=RuntimePlan)

    @property
    def trainable(self) -> int:
        """Number of blocks that train: the last ones."""
        return self.model.num_blocks - self.split

    @property
    def traits(self) -> EditTraits:
        """What the edits of the tail do, taken together."""
        return EditTraits.of(self.shape)

    @property
    def has_teacher(self) -> bool:
        """Whether a term of the loss reads the given model's logits."""
        return any(term.teacher for term in self.loss)

    @property
    def cached(self) -> bool:
        """Whether the outputs of the frozen blocks are stored and reused."""
        return self.cache.by != CachePlan().by

    @property
    def cuts(self) -> tuple[int, ...]:
        """Cuts whose inputs come from frozen blocks, ascending: the exits', and the tail's or the final head's."""
        last = min(self.split, self.model.num_blocks - 1)
        return tuple(sorted({last, *(exit_.block for exit_ in self.heads.exits if exit_.block <= last)}))

    @property
    def answering_cuts(self) -> tuple[int, ...]:
        """Cuts whose inputs the exits and the final head read, ascending, those in a tail among them."""
        return tuple(sorted({self.cuts[-1], *(exit_.block for exit_ in self.heads.exits)}))

    @property
    def local_samples(self) -> int:
        """Number of local training samples that are used, those that calibrate exits included."""
        return share_of(self.task.local_train, self.data.share) - self.data.left_out(self.task.local_train)

    @property
    def local_scored(self) -> int:
        """Number of local samples that are scored: for validation, and with folds those for training too."""
        if self.data.fold:
            return self.data.left_out(self.task.local_train)
        return share_of(self.task.local_val, self.data.share) + (self.local_samples if self.data.folds else 0)

    @property
    def global_scored(self) -> int:
        """Number of global validation samples that are scored."""
        return 0 if self.data.fold else share_of(self.task.global_val, self.data.share)

    @property
    def scored(self) -> dict[str, int]:
        """Number of validation samples by domain."""
        return {"local": self.local_scored, "global": self.global_scored}

    @property
    def global_samples(self) -> int:
        """Number of global training samples mixed in."""
        return self.task.mixed_samples(self.data.alpha * self.data.share)

    @property
    def train_samples(self) -> int:
        """Number of training samples in one epoch."""
        return self.local_samples + self.global_samples

    @property
    def pool(self) -> DataPlan:
        """Global samples whose features are computed: all candidates for mixing in, or all that exits begin with."""
        return replace(self.data, alpha=1.0, edit=None) if self.heads.global_weight else self.data.pool

    @property
    def pool_samples(self) -> int:
        """Number of samples whose features are computed for training."""
        return self.local_samples + self.task.mixed_samples(self.pool.alpha * self.pool.share)

    @property
    def read_samples(self) -> int:
        """Number of samples whose features are computed, for training and scoring together."""
        twice = self.local_samples if len(self.trainings) > 1 else 0
        return self.pool_samples + self.local_scored + self.global_scored - twice

    @property
    def trainings(self) -> "tuple[TrialPlan, ...]":
        """The trainings that judge the plan: first on all samples, whose weights are kept, then without each fold."""
        if self.data.fold or not self.data.folds:
            return (self,)
        without = (replace(self, data=replace(self.data, fold=1 + number)) for number in range(self.data.folds))
        return replace(self, data=replace(self.data, folds=0)), *without

    @property
    def source(self) -> BlockInfo:
        """The block whose input an epoch reads: the stored maps, or the model's inputs."""
        cut = self.split if self.cached else 0
        return self.model.blocks[min(cut, self.model.num_blocks - 1)]

    @property
    def can_augment(self) -> bool:
        """Whether the task allows a random change of what an epoch reads, and that has an extent."""
        return self.source.extends_for(active_operations(self.task.augment, cached=self.cached))

    @property
    def chooses(self) -> bool:
        """Whether more samples are candidates for mixing in than are mixed in."""
        return self._counts(self.data) != self._counts(self.data.pool)

    def _counts(self, data: DataPlan) -> tuple[int, ...]:
        """Return the number of global training samples that a fraction takes, by class."""
        return per_class_counts(self.task.global_per_class, data.alpha * data.share)

    def key(self) -> str:
        """Return a hash that is equal for plans that train the same thing (32 hex digits).

        What equals its default is left out. Two fractions that select the same samples are one plan: the hash holds the
        counts, not the fraction. The limit on memory belongs to the device.
        """
        decided = replace(self, data=replace(self.data, alpha=0.0), runtime=replace(self.runtime, memory_bytes=0))
        content = {stage.value: settings_of(getattr(decided, stage.value), hashed=True) for stage in Stage}
        content["counts"] = self._counts(self.data), self._counts(self.data.pool)
        content["model"], content["task"] = self.model.fingerprint, self.task.fingerprint
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def line(self) -> str:
        """Return a hash (32 hex digits) that is equal for plans of which one continues the other's training.

        They differ in their epochs, and in the share of the samples, alone.
        """
        whole = replace(self.data, share=1.0)
        return replace(self, data=whole, recipe=replace(self.recipe, epochs=1, patience=0)).key()

    def settings(self) -> dict[str, Any]:
        """Return every decision as JSON's types, without the description of model and task, which is long.

        Settings that are `OPTIONAL` and at their default are left out.
        """
        stages = (stage for stage in Stage if stage is not Stage.LOSS or self.loss)
        return {stage.value: settings_of(getattr(self, stage.value)) for stage in stages}

    def carried_to(self, model: ModelInfo, task: TaskInfo) -> "TrialPlan":
        """Return the same decisions for all samples of another task, or for a model with a grown head.

        Raises:
            PlanError: The model has another number of blocks.
        """
        if model.num_blocks != self.model.num_blocks:
            raise PlanError(
                f"a plan for {self.model.num_blocks} blocks cannot be used for {model.name}, which has "
                f"{model.num_blocks}: run `tuner run` on that task instead"
            )
        return normal_form(replace(self, model=model, task=task, data=replace(self.data, share=1.0, folds=0)))


def check(plan: TrialPlan) -> TrialPlan:
    """Return the plan if it obeys every rule.

    Raises:
        PlanError: A rule is broken; the message gives the rule and the value.
    """
    for holds, rule, value in _rules(plan):
        if not holds:
            raise PlanError(f"plan: {rule}, got {value}")
    return plan


def _rules(plan: TrialPlan) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule holds, the rule, and the value it is about."""
    num_blocks = plan.model.num_blocks
    alpha, bits, augment = plan.data.alpha, plan.cache.bits, plan.cache.augment
    yield num_blocks >= 1, "model.blocks must have at least one block", num_blocks
    yield 0 <= plan.split <= num_blocks, f"split must be in [0, {num_blocks}]", plan.split
    yield 0 <= alpha <= 1, "data.alpha must be in [0, 1]", alpha
    yield 0 < plan.data.share <= 1, "data.share must be above 0 and at most 1", plan.data.share
    folds, most = plan.data.folds, plan.task.local_train if plan.data.share == 1 else 0
    yield folds == 0 or 2 <= folds <= most, f"data.folds must be 0, or in [2, {most}] with data.share = 1", folds  # noqa: PLR2004 - two parts
    yield 0 <= plan.data.fold <= folds, f"data.fold must be in [0, {folds}]", plan.data.fold
    yield 0 < plan.data.weight < math.inf, "data.weight must be above 0", plan.data.weight
    if plan.data.edit is not None:
        yield plan.data.edit.candidates >= 1, "data.edit.candidates must be at least 1", plan.data.edit.candidates
    yield bits in STORED_BITS, f"{Stage.CACHE}.bits must be one of {', '.join(map(str, STORED_BITS))}", bits
    yield 0 <= augment <= 1, f"{Stage.CACHE}.augment must be in [0, 1]", augment
    yield from recipe_rules(plan.recipe)
    for term in plan.loss:
        yield 0 < term.weight < math.inf, f"the weight of loss term {term.kind!r} must be above 0", term.weight
    yield from runtime_rules(plan.runtime)
    yield from head_rules(plan.heads, num_blocks)
    yield plan.split < num_blocks or bool(plan.heads.exits), "a tail block or an exit must train", "neither"


def normal_form(plan: TrialPlan) -> TrialPlan:
    """Return the plan that stands for all that train the same thing: settings without effect are at their defaults.

    Raises:
        PlanError: The plan breaks a rule.
    """
    heads = effective_heads(plan.heads, plan.split, plan.task)
    plan = replace(plan, heads=heads)
    if heads.mode == "exits-only":  # no tail trains, and the teacher answers to samples without random changes
        plan = replace(plan, split=plan.model.num_blocks, shape=(), loss=(), cache=replace(plan.cache, augment=0.0))
    if plan.traits.solves or (heads.ridge and heads.mode == "exits-only"):
        plan = replace(plan, loss=(), cache=replace(plan.cache, augment=0.0), recipe=RecipePlan(epochs=1))
    if plan.split == 0 or not plan.cached:  # nothing is frozen, or nothing is stored
        plan = replace(plan, cache=CachePlan(augment=plan.cache.augment))
    if not plan.can_augment:
        plan = replace(plan, cache=replace(plan.cache, augment=0.0))
    if not plan.task.global_per_class:
        plan = replace(plan, data=replace(plan.data, alpha=DataPlan().alpha, edit=None))
    check(plan)
    if plan.traits.solves or not plan.global_samples:  # a head that is solved for has weights of its own
        plan = replace(plan, data=replace(plan.data, weight=DataPlan().weight))
    if plan.traits.solves or not plan.task.labelled:
        plan = replace(plan, data=replace(plan.data, balance=False))
    if not plan.chooses:
        plan = replace(plan, data=replace(plan.data, edit=None))
    norms = plan.traits.trains_norms or (heads.joint > 0 and heads.trains_norms)
    recipe = replace(
        plan.recipe,
        label_smoothing=plan.task.targets.smoothed(plan.recipe.label_smoothing).settings.label_smoothing,
        solve_again=plan.recipe.solve_again and not heads.exits,  # their final head is the exits' teacher
    )
    recipe = effective_recipe(recipe, exits_alone=heads.mode == "exits-only", trains_norms=norms)
    runtime = effective_runtime(plan.runtime, before_tail=plan.split > 0 and not heads.exits)
    return replace(plan, recipe=recipe, runtime=runtime)
