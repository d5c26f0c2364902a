"""What installed plugins add to a backend. This module loads no tensor library."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from tuner.backends.batches import BatchFunction
from tuner.backends.losses import LossFunction
from tuner.backends.lowering import Lowering
from tuner.backends.measuring import Measure
from tuner.backends.selecting import Selector
from tuner.errors import ExtensionError
from tuner.plan.parts import Optimiser, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.ridge.solver import HeadSolver


class OptimiserError(ExtensionError):
    """A plugin's factory of an optimiser failed, or returned something else."""

    what = noun = "optimiser"


#: Takes the parameters that train and the recipe, and returns a `torch.optim.Optimizer`; the loop sets ``lr`` of its
#: groups before a step. Where its ``step(closure)`` requires a closure, it computes gradients by calling that.
OptimiserFactory = Callable[[Sequence[Any], RecipePlan], Any]
#: What an extension is, for people, and its kind.
What = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Extensions:
    """What installed plugins add to a backend, by kind.

    Attributes:
        lowerings: How tail edits are realised.
        solvers: How heads are solved from sums, by the kind of the tail edit; a lowering of the kind comes first.
        losses: How terms of the loss are computed.
        optimisers: How optimisers that the backend does not have itself are made.
        selectors: How data edits choose samples.
        batches: How batches of training are changed.
        measures: How values of objectives are measured, by the objective's name.
        owners: Names of the plugins that realise a kind; one that several realise is not used.
    """

    lowerings: Mapping[str, Lowering] = field(default_factory=dict)
    solvers: Mapping[str, HeadSolver] = field(default_factory=dict)
    losses: Mapping[str, LossFunction] = field(default_factory=dict)
    optimisers: Mapping[str, OptimiserFactory] = field(default_factory=dict)
    selectors: Mapping[str, Selector] = field(default_factory=dict)
    batches: Mapping[str, BatchFunction] = field(default_factory=dict)
    measures: Mapping[str, Measure] = field(default_factory=dict)
    owners: Mapping[What, Sequence[str]] = field(default_factory=dict)

    def lacking(self, plan: TrialPlan) -> str | None:
        """Return which part of a plan no installed plugin realises, for people; None where all are realised."""
        for what, kind, offered in self._asked(plan):
            if kind not in offered:
                there, backend = ", ".join(sorted(offered)) or "none", plan.runtime.backend
                return (
                    f"no installed plugin realises {what} {kind!r} on {backend} (there are: {there}): "
                    "see `tuner plugins`"
                )
            if (clash := self.clash((what, kind))) is not None:
                return clash
        return None

    def kinds(self, plan: TrialPlan) -> list[What]:
        """Return what a plan needs of plugins."""
        return [(what, kind) for what, kind, _ in self._asked(plan)]

    def clash(self, what: What) -> str | None:
        """Return for people which plugins realise the same kind of extension; None where one does."""
        owners = self.owners.get(what, ())
        if len(owners) < 2:  # noqa: PLR2004 - a clash needs two
            return None
        names, way_out = " and ".join(map(repr, owners)), f"remove one, or set TUNER_PLUGINS=-{owners[-1]}"
        return f"plugins {names} both realise {what[0]} {what[1]!r}: {way_out}"

    def _asked(self, plan: TrialPlan) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield what a plan needs: what it is, its kind, and what is offered."""
        if plan.data.edit is not None:
            yield "data edit", plan.data.edit.kind, self.selectors
        for change in plan.data.batches:
            yield "change of batches", change.kind, self.batches
        for edit in plan.shape:
            yield "tail edit", edit.kind, {**self.lowerings, **self.solvers}
        for term in plan.loss:
            yield "loss term", term.kind, self.losses
        yield "optimiser", plan.recipe.optimiser, dict.fromkeys(get_args(Optimiser)) | dict(self.optimisers)


#: Where no plugin adds anything.
NOTHING_ADDED = Extensions()
#: The hooks whose results make an `Extensions`, with the field that each fills, and what it is for people.
HOOKS: Mapping[str, tuple[str, str]] = {
    "tuner_lowerings": ("lowerings", "tail edit"),
    "tuner_solvers": ("solvers", "tail edit"),
    "tuner_losses": ("losses", "loss term"),
    "tuner_optimisers": ("optimisers", "optimiser"),
    "tuner_selectors": ("selectors", "data edit"),
    "tuner_batches": ("batches", "change of batches"),
    "tuner_measures": ("measures", "measure"),
}
