"""Knobs: the values that a strategy leaves open, drawn one typed call at a time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tuner.errors import KnobError, RangeError
from tuner.plan.info import TaskInfo
from tuner.plan.parts import Scalar

T = TypeVar("T", bound=Scalar)


@dataclass(frozen=True, slots=True)
class Numeric:
    """A range ``[low, high]``; whole numbers only where `whole`. `start` is tried first; None for the middle."""

    name: str
    low: float
    high: float
    whole: bool
    log: bool = False
    start: float | None = field(default=None, repr=False)

    @property
    def fixed(self) -> bool:
        """Whether only one value is left."""
        return self.low == self.high

    def typed(self, value: float) -> int | float:
        """Return `value` as the range's own type, clipped into it."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else float(inside)

    def middle(self) -> int | float:
        """Return the middle of the range, geometric where the range is logarithmic."""
        centre = (self.low * self.high) ** 0.5 if self.log else (self.low + self.high) / 2
        return self.typed(centre)

    def __str__(self) -> str:
        return f"{self.name} in [{self.low:g}, {self.high:g}]{' (log)' if self.log else ''}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values. `start` is tried first; None for the first of them; a search space may ask for `legal`.

    `why` says why there are no others, for who asks for one.
    """

    name: str
    options: tuple[Scalar, ...]
    start: Scalar | None = field(default=None, repr=False)
    legal: Numeric | None = field(default=None, repr=False, compare=False)
    why: str = field(default="", repr=False, compare=False)

    @property
    def fixed(self) -> bool:
        """Whether only one value is left."""
        return len(self.options) == 1

    def __str__(self) -> str:
        return f"{self.name} in {{{', '.join(map(str, self.options))}}}"


Knob = Numeric | Choice
ValueSource = Callable[[Knob], Scalar]
#: What a search space asks of a knob: a value, a list of values, or a (low, high, log) range.
Wanted = Scalar | tuple[Scalar, ...] | Numeric


class Draw:
    """Gives a strategy the values of its knobs while it samples, each once.

    Names are the strategy's own; the scope is put in front of them.

    Attributes:
        task: The task in numbers; None where knobs are listed for no task.
    """

    def __init__(
        self, source: ValueSource, scope: str, wanted: Mapping[str, Wanted] | None = None, task: TaskInfo | None = None
    ) -> None:
        self.task = task
        self._source = source
        self._scope = scope
        self._wanted = wanted or {}
        self._drawn: set[str] | None = set()

    def integer(
        self, name: str, low: int, high: int, *, log: bool = False, start: int | None = None, usual: Sequence[int] = ()
    ) -> int:
        """Draw a whole number in ``[low, high]``, both ends included.

        Args:
            name: Name of the knob.
            low: Smallest value.
            high: Largest value.
            log: Whether values are drawn evenly in the logarithm.
            start: What the search tries first.
            usual: Values that are searched where the search space does not name the knob; all of the range is legal.

        Raises:
            KnobError: Nothing that the search space asks for is legal here.
        """
        return int(self._draw(Numeric(self._full(name), low, high, whole=True, log=log, start=start), usual))

    def number(
        self,
        name: str,
        low: float,
        high: float,
        *,
        log: bool = False,
        start: float | None = None,
        usual: Sequence[float] = (),
    ) -> float:
        """Draw a number in ``[low, high]``; arguments as for `integer`."""
        return float(self._draw(Numeric(self._full(name), low, high, whole=False, log=log, start=start), usual))

    def choice(self, name: str, options: Sequence[T], *, start: T | None = None, why: str = "") -> T:
        """Draw one of `options`; `start` is tried first. `why` tells who asks for another one why there is none."""
        drawn = self._draw(Choice(self._full(name), tuple(options), start, why=why))
        return next(option for option in options if option == drawn)

    def close(self) -> None:
        """Draw nothing more: `sample` has returned."""
        self._drawn = None

    def _full(self, name: str) -> str:
        return f"{self._scope}.{name}"

    def _draw(self, legal: Knob, usual: Sequence[float] = ()) -> Scalar:
        if self._drawn is None:
            raise RangeError(f"{legal.name} is drawn after `sample` returned: draw it there, and keep it in the knobs")
        if legal.name in self._drawn:
            raise RangeError(f"{legal.name} is drawn twice: draw it once, and keep its value")
        self._drawn.add(legal.name)
        _check(legal)
        if legal.start is not None and not is_legal(legal, legal.start):
            raise RangeError(f"{legal} must start inside its range, but start is {legal.start!r}")
        knob = narrow(legal, self._wanted[legal.name]) if legal.name in self._wanted else _usual(legal, usual)
        value = self._source(knob)
        allowed = (
            knob.low <= float(value) <= knob.high
            if isinstance(knob, Numeric) and not isinstance(value, str)
            else isinstance(knob, Choice) and value in knob.options
        )
        if not allowed:
            raise KnobError(f"{knob}, but {value!r} was given: give an allowed value")
        return value


def _usual(legal: Knob, values: Sequence[float]) -> Knob:
    """Return a knob of a few values of a range, all of which a search space may ask for; the range where none are."""
    start = legal.start if legal.start in values else None
    return Choice(legal.name, tuple(values), start, legal) if values and isinstance(legal, Numeric) else legal


def narrow(legal: Knob, wanted: Wanted) -> Knob:
    """Return the part of a knob's legal range that the search space asks for; a `KnobError` where nothing is left."""
    legal = legal.legal or legal if isinstance(legal, Choice) else legal
    if isinstance(wanted, Numeric):
        if not isinstance(legal, Numeric):
            raise KnobError(
                f"{legal.name} takes one of {_list(legal.options)}, not a range: give a value or a list of values"
            )
        low, high = max(legal.low, wanted.low), min(legal.high, wanted.high)
        if legal.whole:
            low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise KnobError(
                f"{legal.name}: the search space asks for [{wanted.low:g}, {wanted.high:g}], but this model allows "
                f"[{legal.low:g}, {legal.high:g}]: change the search space"
            )
        narrowed = replace(legal, low=low, high=high, log=wanted.log)
        try:
            _check(narrowed)
        except RangeError as error:  # what the user asked for, not what the strategy draws
            raise KnobError(f"{error}: change the search space") from None
        return narrowed
    options = wanted if isinstance(wanted, tuple) else (wanted,)
    left = tuple(option for option in options if is_legal(legal, option))
    if not left:
        why = f" ({legal.why})" if isinstance(legal, Choice) and legal.why else ""
        allowed = f"[{legal.low:g}, {legal.high:g}]" if isinstance(legal, Numeric) else _list(legal.options)
        raise KnobError(
            f"{legal.name}: the search space asks for {_list(options)}, but this model allows {allowed}{why}: "
            "change the search space"
        )
    if isinstance(legal, Numeric):
        left = tuple(legal.typed(float(option)) for option in left)
    return Choice(legal.name, tuple(dict.fromkeys(left)), legal.start)


def _check(knob: Knob) -> None:
    if isinstance(knob, Choice):
        if not knob.options:
            raise RangeError(f"{knob.name} must have at least one option, but it has none")
    elif not knob.low <= knob.high:
        raise RangeError(f"{knob.name} must have low ≤ high, but its range is [{knob.low:g}, {knob.high:g}]")
    elif knob.log and knob.low <= 0:
        raise RangeError(f"{knob.name} is logarithmic and must have low > 0, but low is {knob.low:g}")


def is_legal(legal: Knob, value: Scalar) -> bool:
    """Return whether a knob may have a value."""
    if isinstance(legal, Choice):
        return value in legal.options
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and legal.low <= float(value) <= legal.high and (not legal.whole or float(value).is_integer())


def _list(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
