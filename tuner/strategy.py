"""What a strategy is: the class a plugin author writes."""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from tuner.knobs import Draw
from tuner.plan import ModelInfo, Stage, TrialPlan

K = TypeVar("K")


class Strategy(ABC, Generic[K]):
    """One way to spend less. Both methods are pure: no I/O, no tensors, no clock.

    `K` is the plugin's own frozen dataclass of knobs. A class sets `name`, which prefixes its knobs, and `stage`, the
    only part of a plan it may write.
    """

    name: ClassVar[str]
    stage: ClassVar[Stage]

    @abstractmethod
    def sample(self, draw: Draw, model: ModelInfo) -> K:
        """Draw the knobs. Ranges may depend on the model, never on another knob's value."""

    @abstractmethod
    def apply(self, plan: TrialPlan, knobs: K) -> TrialPlan:
        """Return the plan with this strategy's part filled in (`dataclasses.replace`)."""
