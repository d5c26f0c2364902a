"""Values of a model file's keys: read, or refused in one line that names file, section, key and value."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tuner.errors import ModelError, nearest
from tuner_nntrainer.network.layers import Padding, Pair, Shape
from tuner_nntrainer.network.network import LayerInput

Word = TypeVar("Word", bound=str)
PADDINGS: tuple[Literal["valid", "same"], ...] = ("valid", "same")
SOURCE = re.compile(r"([^()]+)(?:\(\s*(\d{1,9})\s*\))?")
MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a model file.

    Attributes:
        name: Name as written.
        file: File that it is in.
        keys: Values by lower-case key, as text.
    """

    name: str
    file: Path
    keys: Mapping[str, str]

    @property
    def place(self) -> str:
        """File and section, for messages."""
        return f"{self.file}, [{self.name}]"


def choice(section: Section, key: str, words: tuple[Word, ...], default: Word | None = None) -> Word:
    """Read one of several words, in any case."""
    text = _text(section, key, default, f"one of {', '.join(words)}").lower()
    match = next((word for word in words if word == text), None)
    if match is None:
        raise ModelError(
            f"{section.place}: {key} must be one of {', '.join(words)}, got {text!r}{nearest(text, words)}"
        )
    return match


def positive(section: Section, key: str, default: int | None = None) -> int:
    """Read a whole number above zero."""
    rule = "a whole number above zero"
    return _numbers(section, key, None if default is None else str(default), rule, ",", (1,), 1)[0]


def pair(section: Section, key: str, default: Pair | None = None) -> Pair:
    """Read two whole numbers above zero, for height and width: ``3,3``."""
    text = None if default is None else f"{default[0]},{default[1]}"
    height, width = _numbers(section, key, text, "two whole numbers above zero, such as 3,3", ",", (2,), 1)
    return height, width


def shape(section: Section, key: str) -> Shape:
    """Read ``channels:height:width``, such as ``3:224:224``."""
    rule = "channels:height:width, such as 3:224:224"
    channels, height, width = _numbers(section, key, None, rule, ":", (3,), 1)
    return channels, height, width


def padding(section: Section) -> Padding:
    """Read ``valid``, ``same``, one number, ``height,width`` or ``top,bottom,left,right``; the default is valid."""
    if section.keys.get("padding", "valid").lower() in PADDINGS:
        return choice(section, "padding", PADDINGS, "valid")
    rule = "valid, same, or one, two or four whole numbers"
    match _numbers(section, "padding", None, rule, ",", (1, 2, 4), 0):
        case [every]:
            return every, every, every, every
        case [height, width]:
            return height, height, width, width
        case sides:
            top, bottom, left, right = sides
            return top, bottom, left, right


def padding1d(section: Section) -> Padding:
    """Read the padding along the width: ``valid``, ``same``, one number or ``left,right``; the default is valid."""
    if section.keys.get("padding", "valid").lower() in PADDINGS:
        return choice(section, "padding", PADDINGS, "valid")
    sides = _numbers(section, "padding", None, "valid, same, or one or two whole numbers", ",", (1, 2), 0)
    return 0, 0, sides[0], sides[-1]


def number(
    section: Section,
    key: str,
    default: float | None = None,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """Read a number within limits."""
    limits = ((least, "from"), (above, "above"), (most, "at most"), (below, "below"))
    rule = " ".join(("a number", *(f"{name} {limit:g}" for limit, name in limits if math.isfinite(limit))))
    text = _text(section, key, None if default is None else repr(default), rule)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (least <= value <= most and above < value < below):
        raise ModelError(f"{section.place}: {key} must be {rule}, got {text!r}")
    return value


def word(section: Section, key: str, rule: str) -> str:
    """Read a text that must be there."""
    return _text(section, key, None, rule)


def truth(section: Section, key: str, *, default: bool) -> bool:
    """Read ``true`` or ``false``."""
    return choice(section, key, ("true", "false"), "true" if default else "false") == "true"


def sources(section: Section) -> tuple[LayerInput, ...]:
    """Read ``input_layers``: names separated by commas, ``name(1)`` for the second output of a multiout."""
    inputs = []
    for text in (part.strip() for part in section.keys.get("input_layers", "").split(",") if part.strip()):
        match = SOURCE.fullmatch(text)
        if match is None:
            raise ModelError(f"{section.place}: input_layers must name layers as a, b(1), got {text!r}")
        inputs.append(LayerInput(match[1].strip(), None if match[2] is None else int(match[2])))
    return tuple(inputs)


def _text(section: Section, key: str, default: str | None, rule: str) -> str:
    text = section.keys.get(key, default)
    if text is None:
        raise ModelError(f"{section.place}: {key} is missing: add {key} = ..., {rule}")
    return text


def _numbers(
    section: Section, key: str, default: str | None, rule: str, between: str, counts: tuple[int, ...], least: int
) -> list[int]:
    text = _text(section, key, default, rule)
    parts = [part.strip() for part in text.split(between)]
    if max(map(len, parts)) > MOST_DIGITS:
        raise ModelError(f"{section.place}: a number of {key} may have {MOST_DIGITS} digits, got {text!r}")
    if len(parts) not in counts or not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise ModelError(f"{section.place}: {key} must be {rule}, got {text!r}")
    return [int(part) for part in parts]
