"""The base class of strategies."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.knobs import Draw

K = TypeVar("K")


class Strategy(ABC, Generic[K]):
    """One way to personalise at a lower cost. All methods are pure: no I/O, no tensors, no clock.

    `K` is the plugin's own frozen dataclass of knobs.

    Attributes:
        name: Prefix of the strategy's knobs.
        stage: The part of a plan that the strategy decides, alone or next to others.
        writes: Further parts that `apply` may write, those of shared stages; it takes part in them wherever it takes
            part in its own stage.
        refines: Parts that `refine` may change, after every part has been decided.
        excludes: Names of strategies that it is not combined with; a mapping gives the reason of each. Of its own
            stage, a knob (``shape.by``) draws which one takes part; else the one of the earlier stage does.
        after: Names of strategies of its stage that are applied before it where they take part, and that come first
            where a knob draws which one does.
        baseline: Whether it is what other strategies of its stage are compared with: those are tried first.
        objectives: Names of objectives that it is good for, next to accuracies and the costs of training: studies that
            it takes part in have them too, unless their search space names objectives.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]
    writes: ClassVar[frozenset[Stage]] = frozenset()
    refines: ClassVar[frozenset[Stage]] = frozenset()
    excludes: ClassVar[Collection[str]] = frozenset()
    after: ClassVar[frozenset[str]] = frozenset()
    baseline: ClassVar[bool] = False
    objectives: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def sample(self, draw: Draw, model: ModelInfo) -> K:
        """Draw the knobs. Ranges may depend on the model, never on another knob's value."""

    @abstractmethod
    def apply(self, plan: TrialPlan, knobs: K) -> TrialPlan:
        """Return the plan with this strategy's part filled in (`dataclasses.replace`)."""

    def sizes(self, own: int) -> Sequence[int]:  # noqa: ARG002 - optional
        """Return the sizes of the input in pixels, other than the task's own, that its plans may ask for.

        The model is looked at with each: `ModelInfo.sizes` then has those that it takes.
        """
        return ()

    def refine(self, plan: TrialPlan, knobs: K) -> TrialPlan:  # noqa: ARG002 - optional
        """Return the plan with changes of what others decided, such as another learning rate."""
        return plan

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - optional
        """Return plans worth trying first, best first: each as values of some knobs, by their full names.

        All other knobs have their start values. An anchor that trains the whole model is skipped if it would take too
        much of the time.
        """
        return ()
