"""A table of ``bundle.json``, read key by key: every value of the right type and within bounds before it is used."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

from tuner.errors import BundleError

MOST_ITEMS = 100_000
MOST_LETTERS = 10_000
#: Largest whole number: of bytes, of samples, of a seed.
MOST = 2**63 - 1
D = TypeVar("D")
_REQUIRED: Any = object()
_SHOWN = 80
#: Methods of `Table` by the type of what they return.
_READERS: Mapping[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "flag",
    tuple[str, ...]: "texts",
    tuple[int, ...]: "integers",
    tuple[float, ...]: "numbers",
}


class Within(NamedTuple):
    """Bounds of a number, or of those in a list: ``Annotated[float, Within(0, 1)]``."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Table:
    """A table that may come from elsewhere.

    Its methods raise a `BundleError` where a value is of another type, too long or out of bounds, and a `KeyError`
    where it is missing and there is no default.

    Attributes:
        content: The table, as JSON holds it.
        place: Where it is, for messages: ``[scores] ``; empty at the top.
    """

    content: Mapping[str, Any]
    place: str = ""

    def __contains__(self, key: str) -> bool:
        return self.content.get(key) is not None

    def read(self, kind: type[D], *, whole: bool = False, **given: Any) -> D:
        """Return a dataclass, each field by its annotated type.

        Args:
            kind: The dataclass.
            whole: Whether values must be there whose default is another one than None.
            given: Fields that are not read.
        """
        read = {own.name: self._field(own, whole=whole) for own in fields(kind) if own.name not in given}  # type: ignore[arg-type]  # a dataclass
        return kind(**read, **given)

    def _field(self, own: Field[Any], *, whole: bool) -> Any:
        if own.name not in self and (own.default is None or not (whole or own.default is MISSING)):
            return own.default
        kind, *bounds = get_args(own.type) if get_origin(own.type) is Annotated else (own.type,)
        (kind,) = {kind} & _READERS.keys() or {part for part in get_args(kind) if part is not NoneType}
        return getattr(self, _READERS[kind])(own.name, **(bounds[0]._asdict() if bounds else {}))

    def table(self, key: str) -> "Table":
        """Return a table of this one; an empty one where it has none."""
        value = self.content.get(key)
        if value is not None and (not isinstance(value, Mapping) or len(value) > MOST_ITEMS):
            raise self.wrong(key, f"a table of at most {MOST_ITEMS:,} entries", value)
        return Table(value or {}, f"[{key}] ")

    def text(self, key: str) -> str:
        """Return a string."""
        value = self.content[key]
        if not isinstance(value, str) or len(value) > MOST_LETTERS:
            raise self.wrong(key, f"text of at most {MOST_LETTERS:,} letters", value)
        return value

    def integer(self, key: str, default: Any = _REQUIRED, *, least: int = 0, most: int = MOST) -> Any:
        """Return a whole number within bounds."""
        if self._is_default(key, default):
            return default
        value = self.content[key]
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}", value)
        return value

    def number(self, key: str, default: Any = _REQUIRED, *, least: float = -math.inf, most: float = math.inf) -> Any:
        """Return a finite number within bounds."""
        return default if self._is_default(key, default) else self._number(key, self.content[key], least, most)

    def numbers(
        self, key: str, default: Any = _REQUIRED, *, least: float = -math.inf, most: float = math.inf
    ) -> tuple[float, ...]:
        """Return a list of finite numbers within bounds."""
        return tuple(float(self._number(key, value, least, most)) for value in self._list(key, default))

    def integers(self, key: str, *, least: int = 0, most: int = MOST) -> tuple[int, ...]:
        """Return a list of whole numbers within bounds."""
        values = self._list(key, _REQUIRED)
        if any(type(value) is not int or not least <= value <= most for value in values):
            raise self.wrong(key, f"whole numbers from {least} to {most}", values)
        return values

    def texts(self, key: str, default: Any = _REQUIRED) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._list(key, default)
        if any(not isinstance(value, str) or len(value) > MOST_LETTERS for value in values):
            raise self.wrong(key, f"a list of texts of at most {MOST_LETTERS:,} letters", values)
        return values

    def values_of(self, kind: Any, rule: str) -> Mapping[str, Any]:
        """Return all of the table, whose values must be of one type; of numbers they need not be finite."""
        for key, value in self.content.items():
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.wrong(key, rule, value)
        return self.content

    def tables(self, key: str) -> tuple["Table", ...]:
        """Return a list of tables, an empty one where it is missing."""
        values = self._list(key, ())
        if not all(isinstance(value, Mapping) for value in values):
            raise self.wrong(key, "a list of tables", values)
        return tuple(Table(value, f"[{key}] ") for value in values)

    def flag(self, key: str, default: Any = None) -> Any:
        """Return whether something holds."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return default if value is None else value

    def wrong(self, key: str, rule: str, value: object) -> BundleError:
        """Return the error of a value that breaks a rule."""
        return BundleError(f"{self.place}{key} must be {rule}, got {value!r:.{_SHOWN}}: export again")

    def _is_default(self, key: str, default: Any) -> bool:
        return default is not _REQUIRED and self.content.get(key) is None

    def _list(self, key: str, default: Any) -> tuple[Any, ...]:
        values = default if self._is_default(key, default) else self.content[key]
        if not isinstance(values, list | tuple) or len(values) > MOST_ITEMS:
            raise self.wrong(key, f"a list of at most {MOST_ITEMS:,} entries", values)
        return tuple(values)

    def _number(self, key: str, value: Any, least: float, most: float) -> Any:
        if type(value) not in {int, float} or not math.isfinite(value) or not least <= value <= most:
            bounds = "" if math.isinf(most - least) else f" from {least:g} to {most:g}"
            raise self.wrong(key, f"a finite number{bounds}", value)
        return value
