"""Parts of an HTML page; every text is escaped here and nowhere else."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

from tuner.printable import printable
from tuner_report.charts.drawing import LeftOut, Picture

#: A space between a number and its unit, or between two parts of a duration, at which no line may break.
_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|s|ms|h|m|min|B|kB|MB|GB|MiB|GiB|J|points?|px|M?FLOPs?|GFLOPs?)(?!\w)|\d\d[ms](?!\w))"
)
#: A range of numbers: a line may break behind its dash, but not before a word joiner.
_RANGE = re.compile(r"(?<=\d)–(?=\d)")
NO_BREAK, JOINER = "\u00a0", "\u2060"


def text(value: object) -> str:
    """Return a text for a page, whose numbers stay with their units; what would hide or turn letters is escaped."""
    shown = printable(str(value), f"\n{NO_BREAK}{JOINER}")
    return _RANGE.sub(f"–{JOINER}", _UNIT.sub(NO_BREAK, escape(shown)))


def tag(name: str, content: str, style: str = "") -> str:
    """Return an element around content that is escaped already."""
    kind = f' class="{style}"' if style else ""
    return f"<{name}{kind}>{content}</{name}>"


def section(title: str, *parts: str) -> str:
    """Return a section with what is in it; nothing where nothing is."""
    content = "\n".join(part for part in parts if part)
    return f"<section>\n{tag('h2', text(title))}\n{content}\n</section>" if content else ""


def note(line: str) -> str:
    """Return a remark; nothing for no text."""
    return tag("p", text(line), "note") if line else ""


def pictures(drawn: Iterable[Picture | LeftOut]) -> str:
    """Return pictures in a grid; nothing where there is none."""
    shown = "\n".join(figure(one) for one in drawn if isinstance(one, Picture))
    return f'<div class="pictures">\n{shown}\n</div>' if shown else ""


def figure(picture: Picture, style: str = "") -> str:
    """Return a picture with its title and its caption."""
    caption = tag("figcaption", text(picture.caption)) if picture.caption else ""
    return tag("figure", f"{tag('h3', text(picture.title))}{picture.svg}{caption}", style)


def rows_of(shown: Mapping[str, str]) -> str:
    """Return names with what belongs to each, which is HTML already; without those of which there is nothing."""
    items = "".join(f"<dt>{text(name)}</dt><dd>{content}</dd>" for name, content in shown.items() if content)
    return f'<dl class="asked">{items}</dl>'


def table(
    names: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str] = (), marked: int | None = None
) -> str:
    """Return a table, which scrolls inside its box with its first column in place.

    Args:
        names: Of the columns; those that matter first.
        rows: The cells.
        numbers: Names of the columns that hold numbers.
        marked: Place of the row that stands out.
    """
    kinds = ["number" if name in numbers else "text" for name in names]
    head = "".join(tag("th", text(name), kind) for name, kind in zip(names, kinds, strict=True))
    lines = [
        tag("tr", "".join(tag("td", text(cell), kind) for cell, kind in zip(row, kinds, strict=True)), mark)
        for place, row in enumerate(rows)
        for mark in ["best" if place == marked else ""]
    ]
    body = "\n".join(lines)
    shown = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="table" tabindex="0"><table>\n{shown}</table></div>'


def inline(svg: str, name: str) -> str:
    """Return an SVG document as an element of a page, in the page's own colours for text, lines and ground."""
    body = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg.strip())
    body = re.sub(r'<rect width="\d+" height="\d+" fill="white"/>', "", body)
    body = re.sub(r' font-family="[^"]*"', "", body)
    body = body.replace('stroke="black"', 'stroke="var(--ink)"').replace('stroke="white"', 'stroke="var(--card)"')
    return body.replace("<svg ", f'<svg role="img" aria-label="{text(name)}" fill="var(--ink)" ', 1)
