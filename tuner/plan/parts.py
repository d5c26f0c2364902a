"""The parts of a plan, each decided in a stage of its own."""

import math
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any, ClassVar, Literal

from tuner.plan.info import FORBID

#: A setting or the value of a knob.
Scalar = bool | int | float | str
Optimiser = Literal["sgd", "adam", "adamw"]
Schedule = Literal["cosine", "constant"]


class Stage(StrEnum):
    """The part of a plan a strategy may write, in the order the parts are decided.

    A stage's value is the name of the plan's field.
    """

    DATA = auto()
    SPLIT = auto()
    SHAPE = auto()
    HEADS = auto()
    CACHE = auto()
    RECIPE = auto()
    RUNTIME = auto()


#: Stages that take several strategies: tuples only grow, any other value has one owner.
SHARED_STAGES = frozenset({Stage.DATA, Stage.SHAPE, Stage.HEADS})


@dataclass(frozen=True, slots=True)
class DataPlan:
    """How much of the global data is mixed in, and how much of everything is used.

    Attributes:
        alpha: Fraction of every class of the global data, in [0, 1].
        share: Share of the samples of every partition, for validation too, in (0, 1]. The lower rungs of a search take
            less than all.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    alpha: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class TailEdit:
    """A change a plugin makes to the trainable tail; the backend's lowering for `kind` realises it.

    Attributes:
        kind: Lowering's name (``tuner_lowerings``).
        settings: Pairs of name and value, sorted by name.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    kind: str
    settings: tuple[tuple[str, Scalar], ...] = ()


@dataclass(frozen=True, slots=True)
class CachePlan:
    """How the outputs of the frozen prefix are stored.

    Attributes:
        by: Name of the strategy that stores them; ``"none"`` runs the prefix in every epoch.
        bits: Width of a stored value: 32, 16 (plain), 8, 4, 2 or 1 (channel-wise codes).
        augment: Strength of the task's random changes, in [0, 1]; made to the stored maps, or to the inputs where
            nothing is stored.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    by: str = "none"
    bits: int = 32
    augment: float = 0.0


@dataclass(frozen=True, slots=True)
class RecipePlan:
    """How the tail trains.

    Attributes:
        epochs: Maximum number of passes over the training samples.
        batch_size: Samples per step.
        optimiser: Update rule; ``"sgd"`` has momentum 0.9.
        learning_rate: Learning rate at the first step.
        weight_decay: Weight decay; decoupled for ``"adamw"``, L2 otherwise.
        schedule: Course of the learning rate; ``"cosine"`` reaches 0 at the last step.
        patience: Number of epochs without a better local validation accuracy after which training stops; 0 never
            stops.
        freeze_bn: Whether the tail's batch norms keep their statistics.
        micro_batches: Number of parts a batch is divided into. Their gradients are summed before the update, which
            gives the same result in less memory and more time.
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
        backend: Backend's name.
        threads: Number of its threads.
        precision: Precision of its arithmetic.
        memory_bytes: Limit of what a tail that changes while it trains may take, above the resting process; 0 for no
            limit. It belongs to the device and is no part of the plan's `key`.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID
    backend: str = "torch"
    threads: int = 1
    precision: Literal["fp32"] = "fp32"
    memory_bytes: int = 0


def share_of(count: int, share: float) -> int:
    """Return how many of some samples a share takes: rounded up, so that it is at least one."""
    return min(count, math.ceil(share * count))


@lru_cache(maxsize=256)
def per_class_counts(available: tuple[int, ...], alpha: float) -> tuple[int, ...]:
    """Return how many samples of each class a fraction takes: at least one where `alpha` > 0.

    Source: MoIL, Algorithm 1; the rounding is this project's (the thesis leaves it open).

    Args:
        available: Number of samples of each class.
        alpha: Fraction, in [0, 1].
    """
    if alpha == 0:
        return tuple(0 for _ in available)
    return tuple(min(count, max(1, round(alpha * count))) for count in available)
