"""A trial as frozen data: what one trial trains, on what, from where, and how.

Strategies edit a plan, one backend carries it out, and the same object is what a bundle exports as ``plan.toml``.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal

from tuner.errors import PlanError, first_mistake
from tuner.heads import HeadsPlan, head_rules, settled
from tuner.sentence import said
from tuner.store.ops import acting

FORMAT = 1
FORBID: dict[str, Any] = {"extra": "forbid"}
Optimiser = Literal["sgd", "adam", "adamw"]
Schedule = Literal["cosine", "constant"]


class Stage(StrEnum):
    """The part of a plan a strategy may write, in the order the parts are decided.

    A stage's value is the name of the plan's field.
    """

    DATA = "data"
    SPLIT = "split"
    SHAPE = "shape"
    HEADS = "heads"
    CACHE = "cache"
    RECIPE = "recipe"
    RUNTIME = "runtime"


#: Stages that take several strategies: tuples only grow, any other value has one owner.
SHARED_STAGES = frozenset({Stage.DATA, Stage.SHAPE, Stage.HEADS})


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """One block of the chain: the unit that is frozen or trained.

    Attributes:
        name: Of the module, as in the model (``"features.17"``).
        cut: The cut point a split at this block uses: the graph node whose output the store keeps.
        in_shape: Of that output, per sample.
        flops: Of the forward pass, per sample; one multiply-accumulate counts two.
        parameters: Learnable scalars.
        saved_bytes: Kept for the backward pass, per sample, when the block trains (fp32).
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    name: str
    cut: str
    in_shape: tuple[int, ...]
    flops: int
    parameters: int
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model as a chain of blocks, without a tensor.

    Attributes:
        name: The factory's.
        fingerprint: Hash of the graph and of every weight and buffer before training.
        outputs: Rows of the union head.
        blocks: From the input to the head; at least one.
        note: Why only whole-model training is offered, where it is so.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    name: str
    fingerprint: str
    outputs: int
    blocks: tuple[BlockInfo, ...]
    note: str = ""

    @property
    def num_blocks(self) -> int:
        """How many blocks the chain has."""
        return len(self.blocks)


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The task in numbers: how many samples of each kind there are.

    Attributes:
        name: Of the task.
        fingerprint: Hash of the task; a resumed run compares it.
        local_train: Local training samples.
        local_val: Local validation samples.
        global_per_class: Global training samples of each class that has any.
        global_val: Global validation samples; 0 where the task has no global data.
        noun: What one sample is called ("images").
        augment: Operations that keep a sample's label, as the task says (`tuner.store.ops`).
        labelled: Whether the local samples have labels.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    name: str
    fingerprint: str
    local_train: int
    local_val: int
    global_per_class: tuple[int, ...] = ()
    global_val: int = 0
    noun: str = "samples"
    augment: tuple[str, ...] = ()
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class DataPlan:
    """How much of the global data is mixed in: a fraction `alpha` of every class."""

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class TailEdit:
    """A change a plugin makes to the trainable tail; the backend's lowering for `kind` realises it.

    Attributes:
        kind: Names the lowering (``tuner_lowerings``).
        settings: Name and value pairs, sorted by name.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    kind: str
    settings: tuple[tuple[str, bool | int | float | str], ...] = ()


@dataclass(frozen=True, slots=True)
class CachePlan:
    """How the frozen prefix's outputs are kept.

    Attributes:
        by: The strategy that keeps them, or ``"none"``: the prefix runs in every epoch.
        bits: A stored value's width: 32, 16 (plain), 8, 4, 2 or 1 (channel-wise codes).
        augment: Strength of the task's random changes, in [0, 1]; on the stored maps, or on the inputs where nothing
            is stored.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    by: str = "none"
    bits: int = 32
    augment: float = 0.0


@dataclass(frozen=True, slots=True)
class RecipePlan:
    """How the tail trains.

    Attributes:
        epochs: Passes over the training samples, at most.
        batch_size: Samples a step.
        optimiser: `sgd` has momentum 0.9.
        learning_rate: At the first step.
        weight_decay: Decoupled for `adamw`, L2 otherwise.
        schedule: `cosine` falls to 0 at the last epoch.
        patience: Epochs without a better local validation accuracy before training stops; 0 never stops.
        freeze_bn: Whether the tail's batch norms keep their statistics.
        micro_batches: Parts that a batch is cut into: their gradients are summed before the update, for less memory in
            more time and the same result.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    epochs: int = 10
    batch_size: int = 32
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = "cosine"
    patience: int = 0
    freeze_bn: bool = True
    micro_batches: int = 1

    @property
    def part_size(self) -> int:
        """Samples of a batch that are in memory at once."""
        return math.ceil(self.batch_size / self.micro_batches)


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """What carries the plan out.

    Attributes:
        backend: Its name.
        threads: Of it.
        precision: Of its numbers.
        memory_bytes: What a tail that changes while it trains may take, above the resting process; 0 for no limit. A
            limit of the device and no part of the plan's `key`.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    backend: str = "torch"
    threads: int = 1
    precision: Literal["fp32"] = "fp32"
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Blocks ``[0, split)`` are frozen; the tail, blocks ``[split, num_blocks)``, trains."""

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    model: ModelInfo
    task: TaskInfo
    data: DataPlan = field(default_factory=DataPlan)
    split: int = 0
    shape: tuple[TailEdit, ...] = ()
    heads: HeadsPlan = field(default_factory=HeadsPlan)
    cache: CachePlan = field(default_factory=CachePlan)
    recipe: RecipePlan = field(default_factory=RecipePlan)
    runtime: RuntimePlan = field(default_factory=RuntimePlan)

    @property
    def trainable(self) -> int:
        """How many of the last blocks train."""
        return self.model.num_blocks - self.split

    @property
    def cached(self) -> bool:
        """Whether the prefix's outputs are kept and reused."""
        return self.cache.by != "none"

    @property
    def cuts(self) -> tuple[int, ...]:
        """The splits whose inputs the trial reads, ascending: the exits', and the tail's or the final head's."""
        last = min(self.split, self.model.num_blocks - 1)
        return tuple(sorted({last, *(one.block for one in self.heads.exits)}))

    @property
    def global_samples(self) -> int:
        """Global training samples mixed in."""
        return sum(per_class_counts(self.task.global_per_class, self.data.alpha))

    @property
    def train_samples(self) -> int:
        """Training samples of one epoch."""
        return self.task.local_train + self.global_samples

    @property
    def source_shape(self) -> tuple[int, ...]:
        """The shape of one sample as an epoch reads it: of the stored maps, or of the pixels."""
        at = self.split if self.cached else 0
        return self.model.blocks[min(at, self.model.num_blocks - 1)].in_shape

    @property
    def can_augment(self) -> bool:
        """Whether what is changed at random has an extent, and the task allows any change of it."""
        return bool(acting(self.task.augment, cached=self.cached)) and math.prod(self.source_shape[1:]) > 1

    def key(self) -> str:
        """Return a hash that is equal for plans that would train the same thing (32 hex digits).

        Two fractions that pick the same samples are one plan: the hash holds the counts, not the fraction.
        """
        content = asdict(self)
        content["data"] = {"counts": per_class_counts(self.task.global_per_class, self.data.alpha)}
        content["model"], content["task"] = self.model.fingerprint, self.task.fingerprint
        del content["runtime"]["memory_bytes"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def say(self) -> str:
        """Return the plan as one English line."""
        return said(self)

    def settings(self) -> dict[str, Any]:
        """Return everything that was decided, without the model's and the task's description."""
        content = asdict(self)
        return {stage.value: content[stage.value] for stage in Stage}

    def to_toml(self) -> str:
        """Return the plan as TOML; `from_toml` reads it back equal."""
        import tomli_w

        content = asdict(self)
        decided = {"format": FORMAT, **{stage.value: content[stage.value] for stage in Stage}}
        comment = "".join(letter if letter.isprintable() else " " for letter in self.say())
        return f"# {comment}\n" + tomli_w.dumps(decided | {"task": content["task"], "model": content["model"]})

    @classmethod
    def from_toml(cls, text: str) -> "TrialPlan":
        """Read a plan.

        Raises:
            PlanError: It is not TOML, has an unknown or missing key, or comes from a newer version.
        """
        import tomllib

        from pydantic import TypeAdapter, ValidationError

        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(f"a plan is TOML, but this is not: {error}") from None
        version = content.pop("format", None)
        if version != FORMAT:
            raise PlanError(f"a plan has format = {FORMAT}, but this has {version!r}: use the version that wrote it")
        try:
            return check(TypeAdapter(cls).validate_python(content))
        except ValidationError as error:
            parts = (cls, ModelInfo, BlockInfo, TaskInfo, DataPlan, HeadsPlan, CachePlan, RecipePlan, RuntimePlan)
            known = {one.name for part in parts for one in fields(part)}
            raise PlanError(f"plan: {first_mistake(list(map(dict, error.errors())), known)}") from None

    def carried_to(self, model: ModelInfo, task: TaskInfo) -> "TrialPlan":
        """Return the same decisions for another task or a model with a grown head.

        Raises:
            PlanError: The model has another number of blocks.
        """
        if model.num_blocks != self.model.num_blocks:
            raise PlanError(
                f"a plan for {self.model.num_blocks} blocks cannot be carried to {model.name} with "
                f"{model.num_blocks}: run `tuner run` on that task instead"
            )
        return normal_form(replace(self, model=model, task=task))


def per_class_counts(available: tuple[int, ...], alpha: float) -> tuple[int, ...]:
    """Return how many samples of each class a fraction `alpha` takes: at least one where `alpha` > 0.

    Source: MoIL, Algorithm 1; the rounding is this project's (the thesis leaves it open).
    """
    if alpha == 0:
        return tuple(0 for _ in available)
    return tuple(min(count, max(1, round(alpha * count))) for count in available)


def check(plan: TrialPlan) -> TrialPlan:
    """Return the plan if it keeps every rule.

    Raises:
        PlanError: The rule and the value that breaks it.
    """
    rules = (
        (plan.model.num_blocks >= 1, "model.blocks has at least one block", plan.model.num_blocks),
        (0 <= plan.split <= plan.model.num_blocks, f"split is in [0, {plan.model.num_blocks}]", plan.split),
        (0 <= plan.data.alpha <= 1, "data.alpha is in [0, 1]", plan.data.alpha),
        (plan.cache.bits in {32, 16, 8, 4, 2, 1}, "cache.bits is one of 32, 16, 8, 4, 2, 1", plan.cache.bits),
        (0 <= plan.cache.augment <= 1, "cache.augment is in [0, 1]", plan.cache.augment),
        (plan.recipe.epochs >= 1, "recipe.epochs is at least 1", plan.recipe.epochs),
        (plan.recipe.batch_size >= 1, "recipe.batch_size is at least 1", plan.recipe.batch_size),
        (0 < plan.recipe.learning_rate < math.inf, "recipe.learning_rate is above 0", plan.recipe.learning_rate),
        (0 <= plan.recipe.weight_decay < math.inf, "recipe.weight_decay is at least 0", plan.recipe.weight_decay),
        (plan.recipe.micro_batches >= 1, "recipe.micro_batches is at least 1", plan.recipe.micro_batches),
        (plan.recipe.patience >= 0, "recipe.patience is at least 0", plan.recipe.patience),
        (plan.runtime.memory_bytes >= 0, "runtime.memory_bytes is at least 0", plan.runtime.memory_bytes),
        (plan.runtime.threads >= 1, "runtime.threads is at least 1", plan.runtime.threads),
        *head_rules(plan.heads, plan.model.num_blocks),
        (plan.split < plan.model.num_blocks or plan.heads.exits, "something trains: a tail block or an exit", "none"),
    )
    for holds, rule, value in rules:
        if not holds:
            raise PlanError(f"plan: {rule}, but it is {value}")
    return plan


def normal_form(plan: TrialPlan) -> TrialPlan:
    """Return the one plan that stands for all that would train the same thing.

    Raises:
        PlanError: The plan breaks a rule.
    """
    heads = settled(plan.heads, plan.split, labelled=plan.task.labelled)
    plan = replace(plan, heads=heads)
    if heads.mode == "exits-only":  # the teacher's answers are those to the sample as it is
        plan = replace(plan, split=plan.model.num_blocks, shape=(), cache=replace(plan.cache, augment=0.0))
    if plan.split == 0 or not plan.cached:  # nothing is frozen, or nothing is kept
        plan = replace(plan, cache=CachePlan(augment=plan.cache.augment))
    if not plan.can_augment:
        plan = replace(plan, cache=replace(plan.cache, augment=0.0))
    if plan.shape or heads.mode == "exits-only" or not plan.recipe.freeze_bn:  # batch norms that train: whole batches
        plan = replace(plan, recipe=replace(plan.recipe, micro_batches=1))
    elif plan.recipe.micro_batches > plan.recipe.batch_size >= 1:
        plan = replace(plan, recipe=replace(plan.recipe, micro_batches=plan.recipe.batch_size))
    if not plan.task.global_per_class:
        plan = replace(plan, data=DataPlan())
    return check(plan)
