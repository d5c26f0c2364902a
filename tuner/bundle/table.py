"""A table of ``bundle.json``, read key by key: every value of the right type and within bounds before it is used."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from tuner.errors import BundleError

MOST_ITEMS = 100_000
MOST_LETTERS = 10_000
#: Largest whole number: of bytes, of samples, of a seed.
MOST = 2**63 - 1
D = TypeVar("D")
_REQUIRED: Any = object()
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Table:
    """A table that may come from elsewhere.

    Attributes:
        content: The table, as JSON holds it.
        place: Where it is, for messages: ``[scores] ``; empty at the top.
    """

    content: Mapping[str, Any]
    place: str = ""

    def __contains__(self, key: str) -> bool:
        return self.content.get(key) is not None

    def table(self, key: str) -> "Table":
        """Return a table of this one; an empty one where it has none.

        Raises:
            BundleError: It is no table.
        """
        value = self.content.get(key)
        if value is not None and (not isinstance(value, Mapping) or len(value) > MOST_ITEMS):
            raise self.wrong(key, f"a table of at most {MOST_ITEMS:,} entries", value)
        return Table(value or {}, f"[{key}] ")

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: D) -> str | D: ...
    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        """Return a string.

        Raises:
            BundleError: It is none, or too long.
            KeyError: It is missing, and there is no default.
        """
        if self._is_default(key, default):
            return default
        value = self.content[key]
        if not isinstance(value, str) or len(value) > MOST_LETTERS:
            raise self.wrong(key, f"text of at most {MOST_LETTERS:,} letters", value)
        return value

    @overload
    def integer(self, key: str, *, least: int = 0, most: int = MOST) -> int: ...
    @overload
    def integer(self, key: str, default: D, *, least: int = 0, most: int = MOST) -> int | D: ...
    def integer(self, key: str, default: Any = _REQUIRED, *, least: int = 0, most: int = MOST) -> Any:
        """Return a whole number within bounds; errors as for `text`."""
        if self._is_default(key, default):
            return default
        value = self.content[key]
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}", value)
        return value

    @overload
    def number(self, key: str, *, least: float = -math.inf, most: float = math.inf) -> float: ...
    @overload
    def number(self, key: str, default: D, *, least: float = -math.inf, most: float = math.inf) -> float | D: ...
    def number(self, key: str, default: Any = _REQUIRED, *, least: float = -math.inf, most: float = math.inf) -> Any:
        """Return a finite number within bounds; errors as for `text`."""
        return default if self._is_default(key, default) else self._number(key, self.content[key], least, most)

    def numbers(
        self, key: str, default: Any = _REQUIRED, *, least: float = -math.inf, most: float = math.inf
    ) -> tuple[float, ...]:
        """Return a list of finite numbers within bounds; errors as for `text`."""
        return tuple(float(self._number(key, value, least, most)) for value in self._list(key, default))

    def integers(self, key: str, *, least: int, most: int) -> tuple[int, ...]:
        """Return a list of whole numbers within bounds; errors as for `text`."""
        values = self._list(key, _REQUIRED)
        if any(type(value) is not int or not least <= value <= most for value in values):
            raise self.wrong(key, f"whole numbers from {least} to {most}", values)
        return values

    def texts(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        """Return a list of strings; errors as for `text`."""
        values = self._list(key, default)
        if any(not isinstance(value, str) or len(value) > MOST_LETTERS for value in values):
            raise self.wrong(key, f"a list of texts of at most {MOST_LETTERS:,} letters", values)
        return values

    def tables(self, key: str) -> tuple["Table", ...]:
        """Return a list of tables, an empty one where it is missing.

        Raises:
            BundleError: It is none.
        """
        values = self._list(key, ())
        if not all(isinstance(value, Mapping) for value in values):
            raise self.wrong(key, "a list of tables", values)
        return tuple(Table(value, f"[{key}] ") for value in values)

    def flag(self, key: str) -> bool | None:
        """Return whether something holds; None where it is not said.

        Raises:
            BundleError: It is neither.
        """
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def wrong(self, key: str, rule: str, value: object) -> BundleError:
        """Return the error of a value that breaks a rule."""
        shown = f"{value!r:.{_SHOWN}}"
        return BundleError(f"{self.place}{key} must be {rule}, got {shown}: export again")

    def _is_default(self, key: str, default: Any) -> bool:
        return default is not _REQUIRED and self.content.get(key) is None

    def _list(self, key: str, default: Any) -> tuple[Any, ...]:
        values = default if self._is_default(key, default) else self.content[key]
        if not isinstance(values, list | tuple) or len(values) > MOST_ITEMS:
            raise self.wrong(key, f"a list of at most {MOST_ITEMS:,} entries", values)
        return tuple(values)

    def _number(self, key: str, value: Any, least: float, most: float) -> float:
        if type(value) not in {int, float} or not math.isfinite(value) or not least <= value <= most:
            bounds = "" if math.isinf(most - least) else f" from {least:g} to {most:g}"
            raise self.wrong(key, f"a finite number{bounds}", value)
        number: float = value
        return number
