"""A head that a plugin solves from sums of the training samples: in a trial, and again on a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tuner.distribution import SOLVED_HEADS, SWITCH, offered
from tuner.errors import PluginError
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import Sums
from tuner.ridge.union import Domain
from tuner.targets import SINGLE_LABEL, Targets
from tuner.targets.strata import one_hot


@dataclass(frozen=True, slots=True, eq=False)
class SolverSums:
    """What a plugin's `solve(sums)` receives: sums of what enters the head, each sample once, of weight 1.

    Attributes:
        local: Sums of the user's own samples; at least one.
        known: Sums of the global samples that are mixed in.
        given: The model's head before it was personalised.
        settings: Those of the edit.
        targets: What a sample's label is.
        known_weight: What all global samples count in, where all local ones count one (`DataPlan.weight`).
    """

    local: Sums
    known: Sums
    given: LinearHead
    settings: Mapping[str, Any] = field(default_factory=dict)
    targets: Targets = SINGLE_LABEL
    known_weight: float = 1.0

    @classmethod
    def of(cls, local: Domain, known: Domain, given: LinearHead, **about: Any) -> Self:
        """Return what a solver receives of the samples of both domains; `about` has the other attributes."""
        return cls(_sums(local), _sums(known), given, **about)

    @property
    def all(self) -> Sums:
        """Sums of all samples."""
        return self.local + self.known


#: Returns the head of some sums; it depends on nothing else, and numpy is enough for it.
HeadSolver = Callable[[SolverSums], LinearHead]


def _sums(domain: Domain) -> Sums:
    """Return the sums of features as they are: exact, as codes are whole numbers and steps powers of two."""
    empty = Sums.empty(domain.codes.shape[1], domain.outputs, domain.step)
    return empty.added(domain.codes, one_hot(domain.labels, domain.outputs)).rescaled(1.0)


def realised(name: str) -> Any:
    """Return what an installed plugin makes of solvers, in trials or from sums; a `PluginError` where none does."""
    if (point := offered(SOLVED_HEADS).get(name)) is None:
        raise PluginError(f"no plugin that is on offers {name!r} of {SOLVED_HEADS}: see `tuner plugins`, and {SWITCH}")
    return point.load()
