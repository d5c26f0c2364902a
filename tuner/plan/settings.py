"""Settings of a plan: which of them are written, and those of what plugins add to one."""

from dataclasses import fields, is_dataclass
from typing import Any

from tuner.errors import PlanError

#: A setting.
Setting = bool | int | float | str
#: Metadata of a field that files name only where it differs from its default.
OPTIONAL = {"optional": True}


def settings_of(part: Any, *, hashed: bool = False) -> Any:
    """Return a part of a plan as JSON's types, without settings that equal their default.

    Args:
        part: A dataclass, or a value in one.
        hashed: Whether every setting at its default is left out, as keys want it; else those marked `OPTIONAL` alone.
    """
    if isinstance(part, tuple):
        return tuple(settings_of(value, hashed=hashed) for value in part)
    if not is_dataclass(part):
        return part
    return {
        own.name: settings_of(value, hashed=hashed)
        for own in fields(part)
        if (value := getattr(part, own.name)) != own.default or not (hashed or own.metadata)
    }


def sorted_settings(owner: str, settings: object) -> tuple[tuple[str, Setting], ...]:
    """Return settings sorted by name.

    Args:
        owner: Whose they are, for the message.
        settings: Pairs of name and value.

    Raises:
        PlanError: They are something else.
    """
    pairs = tuple(settings) if isinstance(settings, tuple | list) else None
    fine = pairs is not None and all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Setting)  # noqa: PLR2004 - a pair
        for pair in pairs
    )
    if pairs is None or not fine:
        raise PlanError(
            f"{owner}: settings must be pairs of a name and a number, a string or a Boolean, got {settings!r}: "
            "divide a list or a table into several settings"
        )
    return tuple(sorted(((name, value) for name, value in pairs), key=lambda pair: pair[0]))
