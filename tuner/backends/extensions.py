"""What installed plugins add to a backend. This module loads no tensor library."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from tuner.backends.losses import LossFunction
from tuner.backends.lowering import Lowering
from tuner.plan.parts import Optimiser, RecipePlan
from tuner.plan.trial import TrialPlan

#: Takes the parameters that train and the recipe, and returns a `torch.optim.Optimizer` of one group or several; the
#: loop sets ``lr`` of each before a step.
OptimiserFactory = Callable[[Sequence[Any], RecipePlan], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Extensions:
    """What installed plugins add to a backend, by kind.

    Attributes:
        lowerings: How tail edits are realised.
        losses: How terms of the loss are computed.
        optimisers: How optimisers that the backend does not have itself are made.
    """

    lowerings: Mapping[str, Lowering] = field(default_factory=dict)
    losses: Mapping[str, LossFunction] = field(default_factory=dict)
    optimisers: Mapping[str, OptimiserFactory] = field(default_factory=dict)

    def lacking(self, plan: TrialPlan) -> str | None:
        """Return which part of a plan no installed plugin realises, for people; None where all are realised."""
        for what, kind, offered in self._asked(plan):
            if kind not in offered:
                there, backend = ", ".join(sorted(offered)) or "none", plan.runtime.backend
                return (
                    f"no installed plugin realises {what} {kind!r} on {backend} (there are: {there}): "
                    "see `tuner plugins`"
                )
        return None

    def _asked(self, plan: TrialPlan) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield what a plan needs: what it is, its kind, and what is offered."""
        for edit in plan.shape:
            yield "tail edit", edit.kind, self.lowerings
        for term in plan.loss:
            yield "loss term", term.kind, self.losses
        yield "optimiser", plan.recipe.optimiser, dict.fromkeys(get_args(Optimiser)) | dict(self.optimisers)


#: Where no plugin adds anything.
NOTHING_ADDED = Extensions()
