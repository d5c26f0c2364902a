"""Text as a terminal may have it: names of files are any bytes, and messages quote them."""

import os
import re
import textwrap
from collections.abc import Mapping
from typing import TextIO

MOST_LETTERS = 4000  # of an error's line
#: An address up to its password, and that.
_PASSWORD = re.compile(r"(://[^:/@\s]*:).*@", re.DOTALL)
#: The space between a figure and what it is of.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|min|h|kB|MB|GB|TB|bytes|points|samples|trials)\b|%)")


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return a title and a table of two columns, escaped, for a notebook."""
    from html import escape  # imports thousands of names of characters

    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<div><p><b>{escape(title)}</b></p><table>{cells}</table></div>"


def printable(text: str, keep: str = "") -> str:
    """Return a text of which all is escaped that would move a terminal's cursor or hide a name, but letters to keep."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else ascii(letter)[1:-1] for letter in text)


def without_passwords(text: str) -> str:
    """Return a text without the passwords of addresses in it, whatever characters they hold: up to the last @."""
    return _PASSWORD.sub(r"\1***@", text) if "://" in text else text


def one_line(text: str) -> str:
    """Return an error's message as one printable line of bounded length, without passwords."""
    line = printable(without_passwords(" ".join(text.split("\n"))))
    return line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS // 2]} … {line[-MOST_LETTERS // 2 :]}"


def wrapped(text: str, stream: TextIO) -> str:
    """Return a text whose lines fit the stream's terminal, broken between words only; off a terminal, as it is."""
    return wrapped_at(text, _width(stream))


def wrapped_at(text: str, width: int | None) -> str:
    """Return a text whose lines fit a width, broken between words, but not between a figure and its unit."""
    if width is None:
        return text
    lines = []
    for line in _UNIT.sub("\xa0", text).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        wrapper = textwrap.TextWrapper(
            width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, expand_tabs=False
        )
        lines += wrapper.wrap(line) if len(line) > width else [line]
    return "\n".join(lines).replace("\xa0", " ")


def _width(stream: TextIO) -> int | None:
    """Return the number of columns of the terminal behind a stream; None where there is none."""
    try:
        if not stream.isatty():
            return None
        columns = os.environ.get("COLUMNS", "")
        return int(columns) if columns.isdecimal() else os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # closed, or no file
        return None
