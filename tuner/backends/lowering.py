"""What a lowering receives and returns. This module loads no tensor library: the types are the backend's own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import ExtensionError
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.ridge.union import UnionSettings
from tuner.targets import SINGLE_LABEL, Targets


class LoweringError(ExtensionError):
    """A plugin's lowering failed, or broke a rule of lowerings."""

    what, noun = "tail edit", "lowering"


@dataclass(frozen=True, slots=True, eq=False)
class TailBlock:
    """A block of the trained tail.

    Attributes:
        name: Its name in the model.
        layers: Its layers that have weights, by their names in the model, in order, wherever other edits have put them.
            Parameters outside of layers, such as a class token, are in `Tail.module` alone.
    """

    name: str
    layers: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The tail that a lowering edits: the blocks that train. All of its weights train until an edit freezes some.

    Attributes:
        module: The tail as it is now: the given blocks, with what earlier edits made of them.
        blocks: The given blocks, from the cut to the head.
        plan: What is to be trained.
        seed: The trial's seed.
        probe: Takes a number, and returns the mean loss of the tail in evaluation mode on the fixed batch of that
            number: a scalar with its graph. Batches have at most eight training samples; noise where a step is planned.
        given: Returns a copy of the tail as the model has it, before any edit.
    """

    module: Any
    blocks: Sequence[TailBlock]
    plan: TrialPlan
    seed: int
    probe: Callable[[int], Any]
    given: Callable[[], Any]

    @property
    def head(self) -> Any:
        """The last layer that has weights."""
        return list(self.blocks[-1].layers.values())[-1]


@dataclass(frozen=True, slots=True, eq=False)
class SolverInputs:
    """What a solver receives: every training sample once, in a fixed order.

    Attributes:
        features: What enters the solver's layer, float32 [n, features].
        labels: int64 [n], or float32 [n, outputs] with several labels a sample.
        is_local: Whether a sample is the user's own, bool [n]; the others are global ones that are mixed in.
        targets: What a sample's label is.
        known_weight: What all global samples count in, where all local ones count one (`DataPlan.weight`).
    """

    features: Any
    labels: Any
    is_local: Any
    targets: Targets = SINGLE_LABEL
    known_weight: float = 1.0


class Solver:
    """Base class of a module, made by a lowering, whose weights are solved for instead of trained.

    Its edit has ``EditTraits(solves=True)``. The samples run through the tail once, in evaluation mode; then `solve`
    sets weights in place, from the given ones whenever it is called. No optimiser steps.

    Attributes:
        layer: The layer whose inputs it is solved from; they are flattened.
        union: How a device solves the same head again (`tuner.ridge.union`), where that is what it solves: with what
            `solve` has chosen, and the bundle holds.
        notes: What `solve` has chosen, for the trial's record.
        left_out: Set by `solve`: logits of the local samples, each by weights that were solved for without it, float
            [local, outputs]; None where they are not known. They score the plan on all local samples.
    """

    layer: Any
    union: UnionSettings | None = None
    notes: tuple[str, ...] = ()
    left_out: Any = None

    def solve(self, samples: SolverInputs) -> None:
        """Set the weights; a subclass overrides it."""
        raise NotImplementedError("a solver sets its weights: override `solve`")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSamples:
    """The training samples of a trained tail, local and mixed-in ones, each once and without random changes.

    Nothing is computed until `run` or `entering` is called.

    Attributes:
        run: Takes a module of the tail's inputs, and returns what it makes of all samples in evaluation mode, float32
            [n, ...].
        entering: Takes a layer of the tail, and returns what a `Solver` of that layer receives. The layer must be
            applied once to each sample.
        labels: int64 [n], or float32 [n, outputs] with several labels a sample.
        is_local: Whether a sample is the user's own, bool [n]; the others are global ones that are mixed in.
        targets: What a sample's label is.
    """

    run: Callable[[Any], Any]
    entering: Callable[[Any], SolverInputs]
    labels: Any
    is_local: Any
    targets: Targets = SINGLE_LABEL


class Completing:
    """Base class of a module, made by a lowering, that is completed when training ends.

    Its edit has ``EditTraits(keeps_weights=False)``. Weights that it sets then must be loaded like all others.

    Attributes:
        trained: The module inside it that trains, and that a device can train again if its weights are the model's own;
            what is beside it stays. None if a device cannot.
        is_traced: Set on a copy that is traced: its operators must then not depend on the values of tensors.
    """

    trained: Any = None
    is_traced: bool = False

    def complete(self, samples: TrainingSamples) -> tuple[str, ...]:
        """Set the weights that do not train; return notes for the trial's record. A subclass overrides it."""
        raise NotImplementedError("a module that is completed sets its weights: override `complete`")


def trained_part(tail: Any) -> Any:
    """Return the module of a tail that a device trains again: the tail itself, unless it is completed."""
    return tail.trained if isinstance(tail, Completing) and tail.trained is not None else tail


#: Realises a tail edit: takes the tail and the edit's settings, and returns the edited module.
Lowering = Callable[[Tail, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What an evolving module receives before the first step.

    Attributes:
        optimiser: Optimiser of the tail's parameters; a parameter that is replaced must be replaced in it.
        example: Inputs of the module, float32 [n, ...].
        loss: Mean loss on a fixed batch of training samples, in evaluation mode, with another module in its place.
        steps: Optimiser steps in one epoch.
        seed: Trial's seed.
        recipe: How the tail trains.
    """

    optimiser: Any
    example: Any
    loss: Callable[[Any], Any]
    steps: int
    seed: int
    recipe: RecipePlan = field(default_factory=RecipePlan)


class Evolving:
    """Base class of a module, made by a lowering, that the loop calls around its steps and epochs.

    Every method may be left out. A later edit may put the module inside another one: where shapes of weights change,
    `torch.nn.Module.register_load_state_dict_pre_hook` is the place to follow them.

    Attributes:
        kind: Kind of the edit that made it; set by the backend.
        fresh_norms: Whether its norms have no statistics worth keeping, so that they train whatever the recipe says.
        constant_until: Share of all steps, below 1, during which it still changes: a cosine learning rate is constant
            until then. It is read after `begin`, `after_epoch` and `restore`.
    """

    kind: str = ""
    fresh_norms: bool = False
    constant_until: float = 0.0

    def begin(self, training: Training) -> None:
        """Prepare for the first step."""

    def before_update(self, loss: float) -> None:
        """Read or change the gradients of a batch, whose mean loss is given."""

    def after_update(self) -> None:
        """Follow a step of the optimiser."""

    def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:  # noqa: ARG002 - optional
        """Change after an epoch, numbered from 1; return entries for its log.

        `room` are the bytes that training may take beyond its peak so far; None for no limit.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Return its state between epochs, without the weights: tensors, numbers, strings, lists and dictionaries."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the weights of that time are loaded already."""

    def finish(self, samples: TrainingSamples) -> tuple[str, ...]:  # noqa: ARG002 - optional
        """Become what is scored, written and exported, without gradients; return notes for the trial's record."""
        return ()

    def record(self, names: Mapping[Any, str]) -> dict[str, Any]:  # noqa: ARG002 - optional
        """Return what a bundle records of the finished change, as JSON takes it; called on a tail with loaded weights.

        It is called for edits with ``keeps_weights=False``. `names` are modules' names in the whole model.
        """
        return {}
