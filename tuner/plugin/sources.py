"""Where the values of knobs come from: a record, preferences, chance, or every corner of their ranges."""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from tuner.errors import KnobError
from tuner.plan.parts import Scalar
from tuner.plugin.knobs import Choice, Knob, ValueSource


def fixed_values(values: Mapping[str, Scalar]) -> ValueSource:
    """Return a source that replays recorded values; a `KnobError` for a knob that has none.

    One that can have one value alone needs none: older records do without knobs that came later.
    """

    def source(knob: Knob) -> Scalar:
        if knob.name not in values:
            if isinstance(knob, Choice) and knob.fixed:
                return knob.options[0]
            raise KnobError(f"{knob.name} has no recorded value: the record has {', '.join(values)}")
        return values[knob.name]

    return source


def preferred_values(preferences: Mapping[str, Scalar]) -> ValueSource:
    """Return a source that gives each preferred value, else the knob's start, clipped into the knob.

    Of options that are numbers, the nearest one is given. A knob with neither a preferred value nor a start gives the
    middle of its range, or its first option.
    """

    def source(knob: Knob) -> Scalar:
        preferred = preferences.get(knob.name, knob.start)
        if isinstance(knob, Choice):
            return preferred if preferred in knob.options else nearest_option(knob.options, preferred)
        if preferred is None or isinstance(preferred, str):
            return knob.middle()
        return knob.typed(preferred)

    return source


def nearest_option(options: Sequence[Scalar], wanted: Scalar | None) -> Scalar:
    """Return the option nearest to a value, by ratio; the first one where they are no numbers."""
    numbers = [one for one in options if not isinstance(one, bool | str)]
    if wanted is None or isinstance(wanted, bool | str) or len(numbers) < len(options):
        return options[0]
    return min(numbers, key=lambda one: abs(math.log1p(abs(one)) - math.log1p(abs(wanted))))


def random_values(generator: random.Random) -> ValueSource:
    """Return a source that draws uniformly from what is legal; from a logarithmic range, uniformly in the logarithm."""

    def source(knob: Knob) -> Scalar:
        if isinstance(knob, Choice):
            return generator.choice(knob.options)
        if knob.log:
            return knob.typed(knob.low * (knob.high / knob.low) ** generator.random())
        return knob.typed(generator.uniform(knob.low, knob.high + (1 if knob.whole else 0)))

    return source


def recording(source: ValueSource, into: dict[str, Scalar], knobs: dict[str, Knob] | None = None) -> ValueSource:
    """Return `source`, with every value drawn also written `into` a dictionary (and every knob into `knobs`)."""

    def recorded(knob: Knob) -> Scalar:
        value = source(knob)
        into[knob.name] = value
        if knobs is not None:
            knobs[knob.name] = knob
        return value

    return recorded


def corners(run: Callable[[ValueSource], object], *, most: int = 512) -> Iterator[dict[str, Knob]]:
    """Run `run` once for every combination of choices and ends of ranges, and yield the knobs that each run drew.

    Conditions on knobs are plain ``if`` in a strategy, so the only way to know them all is to walk through. Runs that
    leave the first values in few places come first: a walk cut short has still been down every branch at least once.

    Args:
        run: Draws from the source it is given.
        most: How many combinations at most.
    """
    pending: deque[tuple[Scalar, ...]] = deque([()])
    for _ in range(most):
        if not pending:
            return
        prefix = pending.popleft()
        seen: dict[str, Knob] = {}
        drawn: list[Scalar] = []

        def source(
            knob: Knob, prefix: tuple[Scalar, ...] = prefix, seen: dict[str, Knob] = seen, drawn: list[Scalar] = drawn
        ) -> Scalar:
            seen[knob.name] = knob
            ends = knob.options if isinstance(knob, Choice) else tuple(map(knob.typed, (knob.low, knob.high)))
            ends = tuple(dict.fromkeys(ends))
            if len(drawn) < len(prefix):
                value = prefix[len(drawn)]
            else:
                value = ends[0]
                pending.extend((*drawn, other) for other in ends[1:])
            drawn.append(value)
            return value

        run(source)
        yield seen
