"""Settings of what plugins add to a plan."""

from tuner.errors import PlanError

#: A setting.
Setting = bool | int | float | str


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
