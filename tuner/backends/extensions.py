"""What installed plugins add to a backend. This module loads no tensor library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.backends.lowering import Lowering
from tuner.plan.trial import TrialPlan


@dataclass(frozen=True, slots=True, eq=False)
class Extensions:
    """What installed plugins add to a backend, by kind.

    Attributes:
        lowerings: How tail edits are realised.
        owners: Names of the plugins that realise a kind; one that several realise is not used.
    """

    lowerings: Mapping[str, Lowering] = field(default_factory=dict)
    owners: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def lacking(self, plan: TrialPlan) -> str | None:
        """Return which part of a plan no installed plugin realises, for people; None where all are realised."""
        for edit in plan.shape:
            if edit.kind not in self.lowerings:
                there, backend = ", ".join(sorted(self.lowerings)) or "none", plan.runtime.backend
                return (
                    f"no installed plugin realises tail edit {edit.kind!r} on {backend} (there are: {there}): "
                    "see `tuner plugins`"
                )
            if (clash := self.clash(edit.kind)) is not None:
                return clash
        return None

    def clash(self, kind: str) -> str | None:
        """Return for people which plugins realise the same kind of edit; None where one does."""
        owners = self.owners.get(kind, ())
        if len(owners) < 2:  # noqa: PLR2004 - a clash needs two
            return None
        names = " and ".join(map(repr, owners))
        return f"plugins {names} both realise tail edit {kind!r}: remove one, or set TUNER_PLUGINS=-{owners[-1]}"
