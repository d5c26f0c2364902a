"""What installed plugins add to a backend. This module loads no tensor library."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.backends.lowering import Lowering
from tuner.backends.measuring import Measure
from tuner.backends.selecting import Selector
from tuner.plan.trial import TrialPlan


@dataclass(frozen=True, slots=True, eq=False)
class Extensions:
    """What installed plugins add to a backend, by kind.

    Attributes:
        lowerings: How tail edits are realised.
        selectors: How data edits are.
        measures: How values of objectives are measured, by the objective's name.
    """

    lowerings: Mapping[str, Lowering] = field(default_factory=dict)
    selectors: Mapping[str, Selector] = field(default_factory=dict)
    measures: Mapping[str, Measure] = field(default_factory=dict)

    def lacking(self, plan: TrialPlan) -> str | None:
        """Return which part of a plan no installed plugin realises, for people; None where all are realised."""
        for edit in plan.shape:
            if edit.kind not in self.lowerings:
                there, backend = ", ".join(sorted(self.lowerings)) or "none", plan.runtime.backend
                return (
                    f"no installed plugin realises tail edit {edit.kind!r} on {backend} (there are: {there}): "
                    "see `tuner plugins`"
                )
        data = plan.data.edit
        if data is not None and data.kind not in self.selectors:
            there = ", ".join(sorted(self.selectors)) or "none"
            return f"no installed plugin offers selector {data.kind!r} (there are: {there}): see `tuner plugins`"
        return None
