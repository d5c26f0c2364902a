"""What every objective obeys."""

from typing import ClassVar, get_args

import pytest

from tuner.plugin.hookspecs import hookimpl
from tuner.results.objectives import Direction, Objective
from tuner.testing.hosting import hosting

#: Letters of a unit.
LONGEST_UNIT = 8
#: Units with a prefix: values are in the unit without it.
PREFIXED = {"ms": "s", "us": "s", "kB": "B", "MB": "B", "GB": "B", "mJ": "J", "kJ": "J", "MFLOP": "FLOP"}


class ObjectiveContract:
    """What every objective obeys.

    Attributes:
        objective: The one under test.
    """

    objective: ClassVar[Objective]

    def test_its_name_is_free(self) -> None:
        """The name is an identifier, as it is a key of a trial's values, and none of the core's."""
        if not self.objective.name.isidentifier():
            pytest.fail(
                f"an objective's name must be an identifier, got {self.objective.name!r}: use letters, digits and _"
            )
        hosting(_Offering(self.objective))

    def test_its_direction_is_known(self) -> None:
        """The study knows which way is better."""
        if self.objective.direction not in get_args(Direction):
            pytest.fail(
                f"{self._who}: direction must be 'maximise' or 'minimise', got {self.objective.direction!r}: name one"
            )

    def test_its_unit_is_a_base_unit(self) -> None:
        """Values are in base units (bytes, seconds, joules), and a fraction's unit is ``%``."""
        unit = self.objective.unit
        if not isinstance(unit, str) or len(unit) > LONGEST_UNIT or unit.split() not in ([], [unit]):
            pytest.fail(f"{self._who}: unit must be a word of at most {LONGEST_UNIT} letters, got {unit!r}: shorten it")
        if unit in PREFIXED:
            pytest.fail(f"{self._who}: values must be in base units, got {unit!r}: give them in {PREFIXED[unit]!r}")

    @property
    def _who(self) -> str:
        return f"objective {self.objective.name!r}"


class _Offering:
    """A plugin that offers one objective."""

    def __init__(self, objective: Objective) -> None:
        self._objective, self.__name__ = objective, f"the one of objective {objective.name}"

    @hookimpl
    def tuner_objectives(self) -> list[Objective]:
        """Offer it."""
        return [self._objective]
