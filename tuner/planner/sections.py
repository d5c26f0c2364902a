"""Values of a model file's keys: read, or refused in a line that names file, section, key and value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tuner.errors import ModelError, nearest
from tuner.planner.layers import Padding, Pair, Shape
from tuner.planner.network import Source

Word = TypeVar("Word", bound=str)
PADDINGS: tuple[Literal["valid", "same"], ...] = ("valid", "same")
SOURCE = re.compile(r"([^()]+?)\s*(?:\(\s*(\d+)\s*\))?")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a model file.

    Attributes:
        name: As written.
        file: It stands in.
        keys: Lower-case key and value, as text.
    """

    name: str
    file: Path
    keys: Mapping[str, str]

    @property
    def place(self) -> str:
        """Where it stands, for errors."""
        return f"{self.file}, [{self.name}]"


def choice(section: Section, key: str, words: tuple[Word, ...], default: Word | None = None) -> Word:
    """Read one of some words, in any case."""
    text = _text(section, key, default, f"one of {', '.join(words)}").lower()
    found = next((word for word in words if word == text), None)
    if found is None:
        raise ModelError(
            f"{section.place}: {key} is one of {', '.join(words)}, but it is {text!r}{nearest(text, words)}"
        )
    return found


def positive(section: Section, key: str, default: int | None = None) -> int:
    """Read a whole number above zero."""
    rule = "a whole number above zero"
    return _numbers(section, key, None if default is None else str(default), rule, ",", (1,), 1)[0]


def pair(section: Section, key: str, default: Pair | None = None) -> Pair:
    """Read two whole numbers above zero, of height and width: ``3,3``."""
    text = None if default is None else f"{default[0]},{default[1]}"
    height, width = _numbers(section, key, text, "two whole numbers above zero, such as 3,3", ",", (2,), 1)
    return height, width


def shape(section: Section, key: str) -> Shape:
    """Read ``channels:height:width``, as ``3:224:224``."""
    rule = "channels:height:width, such as 3:224:224"
    channels, height, width = _numbers(section, key, None, rule, ":", (3,), 1)
    return channels, height, width


def padding(section: Section) -> Padding:
    """Read ``valid``, ``same``, one number, ``height,width`` or ``top,bottom,left,right``; valid where not given."""
    if section.keys.get("padding", "valid").lower() in PADDINGS:
        return choice(section, "padding", PADDINGS, "valid")
    rule = "valid, same, or one, two or four whole numbers"
    found = _numbers(section, "padding", None, rule, ",", (1, 2, 4), 0)
    each = found * 4 if len(found) == 1 else found
    top, bottom, left, right = (each[0], each[0], each[1], each[1]) if len(each) == 2 else each  # noqa: PLR2004
    return top, bottom, left, right


def truth(section: Section, key: str, *, default: bool) -> bool:
    """Read ``true`` or ``false``."""
    return choice(section, key, ("true", "false"), "true" if default else "false") == "true"


def sources(section: Section) -> tuple[Source, ...]:
    """Read ``input_layers``: names with commas between, ``name(1)`` for the second output of a multiout."""
    found = []
    for text in (part.strip() for part in section.keys.get("input_layers", "").split(",") if part.strip()):
        match = SOURCE.fullmatch(text)
        if match is None:
            raise ModelError(f"{section.place}: input_layers names layers as a, b(1), but one is {text!r}")
        found.append(Source(match[1], None if match[2] is None else int(match[2])))
    return tuple(found)


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
    if len(parts) not in counts or not all(part.isascii() and part.isdigit() and int(part) >= least for part in parts):
        raise ModelError(f"{section.place}: {key} is {rule}, but it is {text!r}")
    return [int(part) for part in parts]
