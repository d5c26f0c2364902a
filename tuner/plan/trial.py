"""A trial as frozen data: strategies edit a plan, a backend carries it out, a bundle exports it as ``plan.toml``."""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.augment.operations import active_operations
from tuner.errors import PlanError
from tuner.plan.heads import HeadsPlan, effective_heads, effective_small, head_rules
from tuner.plan.info import BlockInfo, ModelInfo, Part, TaskInfo, per_class_counts, share_of
from tuner.plan.parts import (
    CachePlan,
    DataPlan,
    EditTraits,
    LossTerm,
    RecipePlan,
    RuntimePlan,
    Stage,
    TailEdit,
    settings_of,
)

#: Widths of a stored value, in bits.
STORED_BITS = (32, 16, 8, 4, 2, 1)
#: Bounds of epochs, samples and parts of a batch, and patience; and of threads.
MOST = 1_000_000
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class TrialPlan(Part):
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
        size: Side of the square that the model sees, in pixels; 0 for the task's own. `model` is the one at that size.
    """

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
    size: int = 0

    @property
    def trainable(self) -> int:
        """Number of blocks that train: the last ones."""
        return self.model.num_blocks - self.split

    @property
    def traits(self) -> EditTraits:
        """What the edits of the tail do, taken together."""
        return EditTraits.of(self.shape)

    @property
    def out_of_fold(self) -> bool:
        """Whether thresholds come from all local samples, each answered by heads that were solved for without it."""
        return self.heads.ridge > 0 and (self.heads.mode == "exits-only" or self.traits.solves)

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
        return tuple(sorted({last, *(exit_.block for exit_ in self.heads.along if exit_.block <= last)}))

    @property
    def answering_cuts(self) -> tuple[int, ...]:
        """Cuts whose inputs the exits and the final head read, ascending, those in a tail among them."""
        return tuple(sorted({self.cuts[-1], *(exit_.block for exit_ in self.heads.along)}))

    @property
    def smaller(self) -> "TrialPlan | None":
        """What is stored for the exit of a smaller input: the whole network at that size; None where there is none."""
        if not self.heads.small:
            return None
        heads = replace(self.heads, exits=(replace(self.heads.exits[0], size=0),))
        model = self.model.at(self.heads.small)
        return replace(self, model=model, size=self.heads.small, split=model.num_blocks, heads=heads)

    @property
    def passes(self) -> "tuple[TrialPlan, ...]":
        """The plan, and what is stored for it of a smaller input: a filling pass each."""
        return (self,) if self.smaller is None else (self, self.smaller)

    @property
    def local_samples(self) -> int:
        """Number of local samples that are learned, those that calibrate exits included."""
        used = share_of(self.task.local_train, self.data.share) - self.data.left_out(self.task.local_train)
        return used + (self.task.local_val if self.data.refit else 0)

    @property
    def local_scored(self) -> int:
        """Number of local samples that judge the plan: for validation, and with folds those for training too."""
        if self.data.fold:
            return self.data.left_out(self.task.local_train)
        folded = self.task.local_train if self.data.folds else 0
        return share_of(self.task.local_val, self.data.share) + folded

    @property
    def local_used(self) -> int:
        """Number of local samples that are used, for training and for validation."""
        return self.local_samples + (0 if self.data.refit else share_of(self.task.local_val, self.data.share))

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
    def operations(self) -> frozenset[str]:
        """The random changes that are drawn of what an epoch reads."""
        return active_operations(self.task.augment, cached=self.cached) - {*self.cache.left_out}

    @property
    def can_augment(self) -> bool:
        """Whether the plan draws a random change of what an epoch reads, and that has an extent."""
        return self.source.extends_for(self.operations)

    @property
    def chooses(self) -> bool:
        """Whether more samples are candidates for mixing in than are mixed in."""
        return self._counts(self.data) != self._counts(self.data.pool)

    def _counts(self, data: DataPlan) -> tuple[int, ...]:
        """Return the number of global training samples that a fraction takes, by class."""
        return per_class_counts(self.task.global_per_class, data.alpha * data.share)

    def key(self) -> str:
        """Return a hash that is equal for plans that train the same thing (32 hex digits).

        It leaves out what equals its default and the limit on memory, and holds counts of mixed-in samples.
        """
        decided = replace(self, data=replace(self.data, alpha=0.0), runtime=replace(self.runtime, memory_bytes=0))
        stages = (stage for stage in Stage if stage is not Stage.SIZE or self.size)
        content = {stage.value: settings_of(getattr(decided, stage.value), hashed=True) for stage in stages}
        content["counts"] = self._counts(self.data), self._counts(self.data.pool)
        content["model"], content["task"] = self.model.fingerprint, self.task.fingerprint
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def line(self) -> str:
        """Return a hash of all but epochs, share, refit and late settings: of equal ones, one may continue another."""
        whole, shape = replace(self.data, share=1.0, refit=False), tuple(edit.while_training for edit in self.shape)
        return replace(self, data=whole, shape=shape, recipe=replace(self.recipe, epochs=1, patience=0)).key()

    def settings(self) -> dict[str, Any]:
        """Return every decision as JSON's types, without `OPTIONAL` settings at their default, model and task."""
        stages = (stage for stage in Stage if stage not in {Stage.SIZE, Stage.LOSS} or getattr(self, stage.value))
        return {stage.value: settings_of(getattr(self, stage.value)) for stage in stages}

    def refitted(self, epochs: int, *, solve_again: bool) -> "TrialPlan":
        """Return the plan that learns every local sample, those that judged it too, for as many epochs as it took.

        `solve_again` says whether the head that was solved for again was the better one: nothing is left to judge by.
        """
        recipe = replace(self.recipe, epochs=max(1, epochs), patience=0, solve_again=solve_again)
        return check(replace(self, data=replace(self.data, share=1.0, refit=True), recipe=recipe))

    def carried_to(self, model: ModelInfo, task: TaskInfo) -> "TrialPlan":
        """Return the same decisions for all samples of another task, or for a model with a grown head.

        The size of the input is the plan's where the model was looked at with it, else the task's own.

        Raises:
            PlanError: The model has another number of blocks.
        """
        if model.num_blocks != self.model.num_blocks:
            raise PlanError(
                f"a plan for {self.model.num_blocks} blocks cannot be used for {model.name}, which has "
                f"{model.num_blocks}: run `tuner run` on that task instead"
            )
        data, size = replace(self.data, share=1.0, folds=0, refit=False), self.size if model.takes(self.size) else 0
        return normal_form(replace(self, model=model.at(size), task=task, data=data, size=size))


def check(plan: TrialPlan) -> TrialPlan:
    """Return the plan if it obeys every rule; a `PlanError` gives the broken rule and the value."""
    for holds, rule, value in _rules(plan):
        if not holds:
            raise PlanError(f"plan: {rule}, got {value}")
    return plan


def _rules(plan: TrialPlan) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule holds, the rule, and the value it is about."""
    num_blocks = plan.model.num_blocks
    alpha, bits, augment = plan.data.alpha, plan.cache.bits, plan.cache.augment
    yield num_blocks >= 1, "model.blocks must have at least one block", num_blocks
    yield plan.size in {0, plan.model.side}, "size must be that of the model's input", plan.size
    yield 0 <= plan.split <= num_blocks, f"split must be in [0, {num_blocks}]", plan.split
    yield 0 <= alpha <= 1, "data.alpha must be in [0, 1]", alpha
    yield 0 < plan.data.share <= 1, "data.share must be above 0 and at most 1", plan.data.share
    folds, most = plan.data.folds, plan.task.local_train if plan.data.share == 1 else 0
    yield folds == 0 or 2 <= folds <= most, f"data.folds must be 0, or in [2, {most}] with data.share = 1", folds  # noqa: PLR2004 - two parts
    yield 0 <= plan.data.fold <= folds, f"data.fold must be in [0, {folds}]", plan.data.fold
    uses_all = not plan.data.refit or (plan.data.share == 1 and not plan.data.fold)
    yield uses_all, "data.refit must be false where data.share or data.fold leaves samples out", True
    yield 0 < plan.data.weight < math.inf, "data.weight must be above 0", plan.data.weight
    if plan.data.edit is not None:
        yield plan.data.edit.candidates >= 1, "data.edit.candidates must be at least 1", plan.data.edit.candidates
    yield bits in STORED_BITS, f"{Stage.CACHE}.bits must be one of {', '.join(map(str, STORED_BITS))}", bits
    yield 0 <= augment <= 1, f"{Stage.CACHE}.augment must be in [0, 1]", augment
    yield from _recipe_rules(plan.recipe)
    for term in plan.loss:
        yield 0 < term.weight < math.inf, f"the weight of loss term {term.kind!r} must be above 0", term.weight
    runtime = plan.runtime
    yield runtime.memory_bytes >= 0, "runtime.memory_bytes must be at least 0", runtime.memory_bytes
    yield 0 <= runtime.int8_loss <= 1, "runtime.int8_loss must be in [0, 1]", runtime.int8_loss
    yield runtime.threads >= 1, "runtime.threads must be at least 1", runtime.threads
    yield runtime.threads <= MOST_THREADS, f"runtime.threads must be at most {MOST_THREADS}", runtime.threads
    yield from head_rules(plan.heads, num_blocks)
    yield plan.split < num_blocks or bool(plan.heads.exits), "a tail block or an exit must train", "neither"


def normal_form(plan: TrialPlan) -> TrialPlan:
    """Return the plan that stands for all that train the same thing: settings without effect are at their defaults.

    Raises:
        PlanError: The plan breaks a rule.
    """
    given = plan.heads if plan.data.alpha > 0 else replace(plan.heads, gated=False)  # nothing to tell the user's from
    given = effective_small(given, takes=not plan.size and plan.model.takes(given.small))
    heads = effective_heads(given, plan.split, plan.task)
    plan = replace(plan, heads=heads)
    if heads.mode == "exits-only":  # no tail trains, and the teacher answers to samples without random changes
        plan = replace(plan, split=plan.model.num_blocks, shape=(), loss=(), cache=replace(plan.cache, augment=0.0))
    if plan.traits.solves or (heads.ridge and heads.mode == "exits-only"):
        steps = bool(heads.exits) and not heads.ridge  # of the exits, which learn from a head that is solved for
        recipe = replace(plan.recipe, solve_again=False) if steps else RecipePlan(epochs=1)
        plan = replace(plan, loss=(), cache=replace(plan.cache, augment=0.0), recipe=recipe)
    if plan.split == 0 or not plan.cached:  # nothing is frozen, or nothing is stored
        plan = replace(plan, cache=CachePlan(augment=plan.cache.augment, left_out=plan.cache.left_out))
    if not plan.can_augment:
        plan = replace(plan, cache=replace(plan.cache, augment=0.0))
    acting = active_operations(plan.task.augment, cached=plan.cached) if plan.cache.augment else frozenset[str]()
    plan = replace(plan, cache=replace(plan.cache, left_out=tuple(sorted(acting & {*plan.cache.left_out}))))
    if not plan.task.global_per_class:
        plan = replace(plan, data=replace(plan.data, alpha=DataPlan().alpha, edit=None))
    check(plan)
    if not plan.global_samples:
        plan = replace(plan, data=replace(plan.data, weight=DataPlan().weight))
    is_solved = plan.traits.solves or (heads.ridge > 0 and heads.mode == "exits-only")
    if is_solved or not plan.task.labelled:  # where all is solved for, each class counts alike anyway
        plan = replace(plan, data=replace(plan.data, balance=False))
    if plan.traits.solves or heads.mode == "exits-only":  # no step of a tail has a batch
        plan = replace(plan, data=replace(plan.data, batches=()))
    if not plan.chooses:
        plan = replace(plan, data=replace(plan.data, edit=None))
    norms = plan.traits.trains_norms or (heads.joint > 0 and heads.trains_norms)
    recipe = replace(
        plan.recipe,
        label_smoothing=plan.task.targets.smoothed(plan.recipe.label_smoothing).settings.label_smoothing,
        solve_again=plan.recipe.solve_again and plan.trainable > 0,  # before exits, which the final head teaches
    )
    recipe = _effective_recipe(recipe, exits_alone=heads.mode == "exits-only", trains_norms=norms)
    runtime = _effective_runtime(plan.runtime, before_tail=plan.split > 0 and not heads.exits)
    return replace(plan, recipe=recipe, runtime=runtime)


def in_int8(plan: TrialPlan, most_loss: float) -> TrialPlan:
    """Return a plan whose bundle has its frozen blocks in int8, which may cost so much of an accuracy, as a share.

    Raises:
        PlanError: The plan has no frozen blocks before a tail.
    """
    if plan.heads.exits or not plan.split:
        reason = "has exits" if plan.heads.exits else "trains the whole model"
        raise PlanError(f"int8 is for the frozen blocks before a tail, but this trial {reason}: pick another trial")
    return replace(plan, runtime=replace(plan.runtime, precision="int8", int8_loss=most_loss))


def _recipe_rules(recipe: RecipePlan) -> Iterator[tuple[bool, str, object]]:
    yield recipe.epochs >= 1, "recipe.epochs must be at least 1", recipe.epochs
    yield recipe.batch_size >= 1, "recipe.batch_size must be at least 1", recipe.batch_size
    yield 0 < recipe.learning_rate < math.inf, "recipe.learning_rate must be above 0", recipe.learning_rate
    for name in ("weight_decay", "clip"):
        yield 0 <= getattr(recipe, name) < math.inf, f"recipe.{name} must be at least 0", getattr(recipe, name)
    for name in ("momentum", "beta1", "beta2"):
        yield 0 <= getattr(recipe, name) < 1, f"recipe.{name} must be at least 0 and below 1", getattr(recipe, name)
    for name in ("epsilon", "decay_rate"):
        yield 0 < getattr(recipe, name) < math.inf, f"recipe.{name} must be above 0", getattr(recipe, name)
    smoothing = recipe.label_smoothing
    yield 0 <= smoothing < 1, "recipe.label_smoothing must be at least 0 and below 1", smoothing
    yield recipe.decay_steps >= 1, "recipe.decay_steps must be at least 1", recipe.decay_steps
    steps = [step for step, _ in recipe.milestones]
    rising = steps == sorted(set(steps)) and all(0 < rate < math.inf for _, rate in recipe.milestones)
    yield rising, "recipe.milestones must have rising steps and rates above 0", recipe.milestones
    yield recipe.micro_batches >= 1, "recipe.micro_batches must be at least 1", recipe.micro_batches
    yield recipe.patience >= 0, "recipe.patience must be at least 0", recipe.patience
    most = max(recipe.epochs, recipe.batch_size, recipe.micro_batches, recipe.patience)
    yield most <= MOST, f"recipe: no number may be above {MOST}", most


def _effective_runtime(runtime: RuntimePlan, *, before_tail: bool) -> RuntimePlan:
    """Return what carries a plan out, with idle settings at their defaults: only blocks before a tail are in int8."""
    if before_tail and runtime.precision == "int8":
        return runtime
    return replace(runtime, precision=RuntimePlan().precision, int8_loss=RuntimePlan().int8_loss)


def _effective_recipe(recipe: RecipePlan, *, exits_alone: bool, trains_norms: bool) -> RecipePlan:
    """Return a recipe with idle settings at their defaults.

    `exits_alone` says that nothing but exits trains, `trains_norms` that norms train whatever the recipe says.
    """
    if exits_alone:  # an exit's norms have no statistics worth freezing: they train whatever the recipe says
        recipe = replace(recipe, freeze_bn=RecipePlan().freeze_bn)
    if trains_norms or exits_alone or not recipe.freeze_bn:  # batch norms that train see whole batches
        recipe = replace(recipe, micro_batches=1)
    # Parts of equal size are what counts: 20 of a batch of 32 are 16 parts of two samples.
    recipe = replace(recipe, micro_batches=math.ceil(recipe.batch_size / recipe.part_size))
    recipe = replace(recipe, **{name: getattr(RecipePlan(), name) for name in _idle(recipe)})
    if recipe.patience >= recipe.epochs - 1:  # between the first epoch and the last there are fewer than that
        recipe = replace(recipe, patience=0)
    return recipe


def _idle(recipe: RecipePlan) -> Iterator[str]:
    """Yield the further settings that the optimiser and the schedule do not read; a plugin's optimiser may read all."""
    if recipe.optimiser in {"adam", "adamw"}:
        yield "momentum"
    if recipe.optimiser == "sgd":
        yield from ("beta1", "beta2", "epsilon")
    if recipe.schedule != "exponential":
        yield from ("decay_rate", "decay_steps")
    if recipe.schedule != "steps":
        yield "milestones"
