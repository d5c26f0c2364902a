"""Durations, sizes and shares as text: parsed from the command line, formatted for reports."""

import math
import re

from tuner.errors import TunerError, UsageError

SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: A letter alone is binary, as in Docker, systemd and ``sort -S``.
BYTES = {"b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgt", 1)
    for suffix, base in (("b", 1000), ("ib", 1024), ("", 1024))
}
#: Largest number of seconds or bytes: 300 centuries, an exabyte.
MOST = 1e18
PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def parse_seconds(text: str, what: str = "time") -> float:
    """Return the seconds of a duration such as ``"90s"``, ``"5m"`` or ``"1h30m"``; `what` names it in messages."""
    return _parse(text, SECONDS, what, "a duration such as 90s, 5m or 1h30m")


def parse_size(text: str, what: str = "memory") -> int:
    """Return the bytes of a size such as ``"512MB"`` (10⁶), ``"1GiB"`` or ``"1G"`` (both 2³⁰); `what` names it."""
    return int(_parse(text, BYTES, what, "a size such as 512MB, 1GiB or 1G"))


def parse_share(text: str, what: str = "share") -> float:
    """Return a share such as ``"3%"`` or ``"0.03"`` as a fraction in (0, 1]; `what` names it in messages."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if rest or not 0 < share <= 1:
        raise _wrong(what, f"must be a share above 0 and at most 100%, such as 3%, got {text!r}")
    return share


def format_seconds(value: float) -> str:
    """Return seconds as text: ``"59.9 s"``, ``"4m 05s"``, ``"1h 30m"``."""
    if value < 59.95:  # noqa: PLR2004 - rounds to less than a minute
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def format_bytes(value: float) -> str:
    """Return bytes as text: ``"38.2 MB"``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.99995 * factor:  # 999.96 MB would round to 1000.0 MB
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def format_limit(value: int) -> str:
    """Return the bytes of a limit in the unit it was most likely typed in: ``"512 MB"``, and ``"1 GiB"`` for ``1G``."""
    for base, suffix in ((1024, "iB"), (1000, "B")):
        power = max((power for power in (1, 2, 3, 4) if value % base**power == 0), default=0)
        if value and power > 1:
            return f"{value // base**power:,} {' KMGT'[power]}{suffix}"
    return format_bytes(value)


def _parse(text: str, units: dict[str, float] | dict[str, int], what: str, form: str) -> float:
    parts = PATTERN.findall(text)
    rest = "".join(PATTERN.sub("", text).split())
    if not parts or rest or any(unit.lower() not in units for _, unit in parts):
        raise _wrong(what, f"must be {form}, got {text!r}")
    total = sum(float(number) * units[unit.lower()] for number, unit in parts)
    if total <= 0:
        raise _wrong(what, f"must be above zero, got {text!r}")
    if total > MOST:
        raise _wrong(what, f"must be at most {MOST:.0e}, got {text!r}")
    return total


def _wrong(what: str, rule: str) -> TunerError:
    """Return the error of a value: of an option it is wrong usage, of a file's key it is not."""
    return (UsageError if what.startswith("--") else TunerError)(f"{what} {rule}")
