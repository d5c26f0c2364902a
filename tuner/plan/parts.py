"""The parts of a plan, each decided in a stage of its own."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum, auto
from typing import Any, Literal

from tuner.errors import PlanError
from tuner.plan.info import Part

#: A setting or the value of a knob.
Scalar = bool | int | float | str
#: Metadata of a field that files name only where it differs from its default.
OPTIONAL = {"optional": True}
#: The optimisers that every backend has.
Optimiser = Literal["sgd", "adam", "adamw"]
Schedule = Literal["warmup", "wsd", "cosine", "constant"]
Precision = Literal["fp32", "int8"]
#: Those, and courses of the learning rate that only a model file asks for.
Course = Literal["warmup", "wsd", "cosine", "constant", "exponential", "steps"]


class Stage(StrEnum):
    """The field of a plan that a strategy may write, in the order they are decided."""

    SIZE = auto()
    DATA = auto()
    SPLIT = auto()
    SHAPE = auto()
    HEADS = auto()
    LOSS = auto()
    CACHE = auto()
    RECIPE = auto()
    RUNTIME = auto()


def settings_of(part: Any, *, hashed: bool = False) -> Any:
    """Return a part of a plan, a dataclass or a value in one, as JSON's types.

    `OPTIONAL` settings that equal their default are left out; in keys (`hashed`), all that do.
    """
    if isinstance(part, tuple):
        return tuple(settings_of(value, hashed=hashed) for value in part)
    if not is_dataclass(part):
        return part
    return {
        own.name: settings_of(value, hashed=hashed)
        for own in fields(part)
        if (value := getattr(part, own.name)) != own.default or not (hashed or own.metadata)
    }


def sorted_settings(owner: str, settings: object) -> tuple[tuple[str, Scalar], ...]:
    """Return pairs of name and value, sorted by name; anything else is a `PlanError` that names the owner."""
    if not isinstance(settings, tuple | list) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Scalar)  # noqa: PLR2004 - a pair
        for pair in settings
    ):
        raise PlanError(
            f"{owner}: settings must be pairs of a name and a number, a string or a Boolean, got {settings!r}: "
            "divide a list or a table into several settings"
        )
    for name, value in settings:
        if isinstance(value, float) and not math.isfinite(value):
            raise PlanError(f"{owner}: the setting {name} must be a finite number, got {value}: give another one")
    return tuple(sorted(((name, value) for name, value in settings), key=lambda pair: pair[0]))


#: Stages that take several strategies: tuples only grow, any other value has one owner.
SHARED_STAGES = frozenset({Stage.DATA, Stage.SHAPE, Stage.HEADS, Stage.LOSS})


@dataclass(frozen=True, slots=True)
class DataEdit(Part):
    """A plugin's rule for which global samples are mixed in, by the selector for `kind`; or a change of batches.

    Attributes:
        kind: Name of the selector (``tuner_selectors``), or of the change of batches (``tuner_batches``).
        settings: Pairs of name and value, sorted by name; a name with anything but a scalar is a `PlanError`.
        candidates: Number of samples that are considered for each one that is chosen. Their features are computed.
    """

    kind: str
    settings: tuple[tuple[str, Scalar], ...] = ()
    candidates: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", sorted_settings(f"data edit {self.kind!r}", self.settings))


@dataclass(frozen=True, slots=True)
class DataPlan(Part):
    """How much of the global data is mixed in, and how much of everything is used.

    Attributes:
        alpha: Fraction of every class of the global data, in [0, 1].
        share: Share of the samples of every partition, in (0, 1]; below 1 on the lower rungs of a search.
        edit: Which samples the fraction takes; None for the first ones in a fixed random order.
        batches: Changes of the batches of training, such as mixup, in their order.
        folds: Folds of the local training samples that judge the plan too (`TrialPlan.trainings`); 0 for none.
        fold: Fold, from 1, that this training leaves out and is scored on; 0 for a training on all of them.
        weight: Weight of a mixed-in sample in the loss, where a local one has 1; of a head that is solved for, what all
            of them count, where all local ones count 1.
        balance: Whether every batch has as many samples of one class as of another, instead of as they come.
        refit: Whether the local samples for validation are learned too, as when a trial is exported.
    """

    alpha: float = 0.0
    share: float = field(default=1.0, metadata=OPTIONAL)
    edit: DataEdit | None = field(default=None, metadata=OPTIONAL)
    batches: tuple[DataEdit, ...] = field(default=(), metadata=OPTIONAL)
    folds: int = field(default=0, metadata=OPTIONAL)
    fold: int = field(default=0, metadata=OPTIONAL)
    weight: float = field(default=1.0, metadata=OPTIONAL)
    balance: bool = field(default=False, metadata=OPTIONAL)
    refit: bool = field(default=False, metadata=OPTIONAL)

    @property
    def pool(self) -> "DataPlan":
        """What the mixed-in samples are chosen from: a larger fraction, all of it."""
        if self.edit is None:
            return self
        return replace(self, alpha=min(1.0, self.alpha * self.edit.candidates), edit=None)

    def left_out(self, count: int) -> int:
        """Return how many of `count` local training samples are in `fold`; folds differ by one sample at most."""
        return len(range(self.fold - 1, count, self.folds)) if self.fold else 0


@dataclass(frozen=True, slots=True)
class EditTraits(Part):
    """What is known of a tail edit before a tensor library is loaded. The defaults are those of a *static* edit.

    A static edit says which weights train and what they are made of (`requires_grad`, `torch.nn.utils.parametrize`).
    Every backend runs it like any tail, and after training the tail is the given one again.

    Attributes:
        changes_shapes: Whether shapes change while the tail trains.
        trains_norms: Whether norms train whatever the recipe says: then batches are not cut.
        traceable: Whether a step can be traced once for all: for the planned executor, and for ONNX Runtime.
        keeps_weights: Whether the trained tail has the given model's layers and weights; else export edits it again.
        solves: Whether its weights are solved for in one pass, without gradients, recipe, random changes and terms.
        keeps_given: Whether the given tail stays next to the trained one, and answers for what the model knew: it takes
            the tail's bytes again, and the trained one may forget.
        after_training: Names of the edit's settings that act when training ends, and not before (`Evolving.finish`):
            trials that differ in these alone share one training.
    """

    changes_shapes: bool = False
    trains_norms: bool = False
    traceable: bool = True
    keeps_weights: bool = True
    solves: bool = False
    keeps_given: bool = field(default=False, metadata=OPTIONAL)
    after_training: tuple[str, ...] = field(default=(), metadata=OPTIONAL)

    @property
    def trains_again(self) -> bool:
        """Whether a device can train it again: layers of the given model, alone or next to the given ones."""
        return self.keeps_weights or self.keeps_given

    @classmethod
    def of(cls, edits: "Iterable[TailEdit]") -> "EditTraits":
        """Return the traits of several edits of one tail."""
        traits = [edit.traits for edit in edits]
        return cls(
            changes_shapes=any(one.changes_shapes for one in traits),
            trains_norms=any(one.trains_norms for one in traits),
            traceable=all(one.traceable for one in traits),
            keeps_weights=all(one.keeps_weights for one in traits),
            solves=any(one.solves for one in traits),
            keeps_given=any(one.keeps_given for one in traits),
            after_training=tuple(name for one in traits for name in one.after_training),
        )


STATIC = EditTraits()


@dataclass(frozen=True, slots=True)
class TailEdit(Part):
    """A change a plugin makes to the trainable tail; the backend's lowering for `kind` realises it.

    Attributes:
        kind: Lowering's name (``tuner_lowerings``).
        settings: Pairs of name and value, sorted by name; a name with anything but a scalar is a `PlanError`.
        traits: What the edit does, for those who do not load it.
    """

    kind: str
    settings: tuple[tuple[str, Scalar], ...] = ()
    traits: EditTraits = field(default=STATIC, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", sorted_settings(f"tail edit {self.kind!r}", self.settings))
        strange = {*self.traits.after_training} - {name for name, _ in self.settings}
        if strange:
            rule = f"after_training of tail edit {self.kind!r} must name settings of it"
            raise PlanError(f"{rule}, got {min(strange)!r}: correct the name")

    @property
    def while_training(self) -> "TailEdit":
        """The edit without the settings that act when training ends."""
        late = self.traits.after_training
        settings = tuple(pair for pair in self.settings if pair[0] not in late)
        return replace(self, settings=settings, traits=replace(self.traits, after_training=())) if late else self

    @classmethod
    def of(cls, kind: str, traits: EditTraits = STATIC, **settings: Scalar) -> "TailEdit":
        """Return an edit with its settings as keyword arguments."""
        return cls(kind, tuple(settings.items()), traits)


@dataclass(frozen=True, slots=True)
class LossTerm(Part):
    """A term that a plugin adds to the tail's loss; the backend's function for `kind` computes it.

    Attributes:
        kind: Name of the loss function (``tuner_losses``).
        weight: What its mean over a batch is multiplied by, above 0.
        settings: Pairs of name and value, sorted by name; a name with anything but a scalar is a `PlanError`.
        teacher: Whether it reads the given model's logits.
    """

    kind: str
    weight: float
    settings: tuple[tuple[str, Scalar], ...] = ()
    teacher: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", sorted_settings(f"loss term {self.kind!r}", self.settings))


@dataclass(frozen=True, slots=True)
class CachePlan(Part):
    """How the outputs of the frozen prefix are stored.

    Attributes:
        by: Name of the strategy that stores them; ``"none"`` runs the prefix in every epoch.
        bits: Width of a stored value: 32, 16 (plain), 8, 4, 2 or 1 (channel-wise codes).
        augment: Strength of the task's random changes, in [0, 1], of stored maps, or of inputs where none are stored.
        left_out: Those of the task's random changes that are not drawn, sorted.
    """

    by: str = "none"
    bits: int = 32
    augment: float = 0.0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecipePlan(Part):
    """How the tail trains.

    Attributes:
        epochs: Maximum number of passes over the training samples.
        batch_size: Samples per step.
        optimiser: Update rule: ``"sgd"``, ``"adam"``, ``"adamw"``, or one that a plugin adds (``tuner_optimisers``).
        learning_rate: Learning rate at the first step.
        weight_decay: Weight decay; decoupled for ``"adamw"``, L2 otherwise.
        schedule: Course of the learning rate. ``"warmup"`` rises over the first steps, then is constant; ``"wsd"``
            (warm-up, stable, decay) also falls to 0 over the last fifth; ``"cosine"`` falls to 0 at the last step.
            ``"exponential"`` multiplies it by `decay_rate` ^ (step / `decay_steps`); ``"steps"`` follows `milestones`.
        patience: Epochs without a better local validation accuracy after which training stops; 0 never stops.
        freeze_bn: Whether the tail's batch norms keep their statistics.
        micro_batches: Number of parts a batch is divided into; their gradients are summed: less memory, more time.
        label_smoothing: Share of the target that all classes get alike, in [0, 1); a task's own setting has precedence.
        clip: Largest norm of all gradients of a step together: longer ones are scaled down to it. 0 for none.
        solve_again: Whether the head is solved for in closed form when training ends, and kept where it is as good.
        momentum: Of ``"sgd"``, in [0, 1).
        beta1: Of ``"adam"`` and ``"adamw"``: share of the mean of gradients that a step keeps.
        beta2: The same of the mean of squared gradients.
        epsilon: Of ``"adam"`` and ``"adamw"``: added to the root of that mean.
        decay_rate: Of the schedule ``"exponential"``, above 0.
        decay_steps: The same, at least 1.
        milestones: Of the schedule ``"steps"``: pairs of a step and a learning rate, which holds from that step on.
    """

    epochs: int = 10
    batch_size: int = 32
    optimiser: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Course = "cosine"
    patience: int = 0
    freeze_bn: bool = True
    micro_batches: int = 1
    label_smoothing: float = field(default=0.0, metadata=OPTIONAL)
    solve_again: bool = field(default=False, metadata=OPTIONAL)
    momentum: float = field(default=0.9, metadata=OPTIONAL)
    beta1: float = field(default=0.9, metadata=OPTIONAL)
    beta2: float = field(default=0.999, metadata=OPTIONAL)
    epsilon: float = field(default=1e-8, metadata=OPTIONAL)
    decay_rate: float = field(default=1.0, metadata=OPTIONAL)
    decay_steps: int = field(default=1, metadata=OPTIONAL)
    milestones: tuple[tuple[int, float], ...] = field(default=(), metadata=OPTIONAL)
    clip: float = field(default=0.0, metadata=OPTIONAL)

    @property
    def part_size(self) -> int:
        """Samples of a batch that are in memory at once."""
        return math.ceil(self.batch_size / self.micro_batches)

    @property
    def continues(self) -> bool:
        """Whether its first epochs are those of the same recipe with more epochs."""
        return self.schedule in {"warmup", "wsd", "constant"}

    @property
    def further(self) -> dict[str, Any]:
        """The optional settings that differ from their defaults."""
        optional = (own for own in fields(self) if own.metadata)
        return {own.name: value for own in optional if (value := getattr(self, own.name)) != own.default}


@dataclass(frozen=True, slots=True)
class RuntimePlan(Part):
    """What carries the plan out.

    Attributes:
        backend: Backend's name.
        threads: Number of its threads.
        precision: Precision of the frozen blocks, in training and in the bundle; the tail's is always float32.
        int8_loss: Largest loss of an accuracy that ``"int8"`` may cost a bundle, as a share: 0.01 is a point.
        memory_bytes: Limit of what training may take above the resting process; 0 for none. No part of the plan's key.
    """

    backend: str = "torch"
    threads: int = 1
    precision: Precision = "fp32"
    int8_loss: float = field(default=0.01, metadata=OPTIONAL)
    memory_bytes: int = 0
