"""Parts of an HTML page; every text is escaped here and nowhere else."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from tuner_report.drawing import Picture


def text(value: object) -> str:
    """Return a text for a page."""
    return escape(str(value))


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


def pictures(drawn: Iterable[Picture | None]) -> str:
    """Return pictures in a grid of one or two columns; nothing where there is none."""
    shown = "\n".join(map(figure, filter(None, drawn)))
    return f'<div class="pictures">\n{shown}\n</div>' if shown else ""


def figure(picture: Picture, style: str = "") -> str:
    """Return a picture with its title and its caption."""
    caption = tag("figcaption", text(picture.caption)) if picture.caption else ""
    return tag("figure", f"{tag('h3', text(picture.title))}{picture.svg}{caption}", style)


def table(names: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0, marked: int | None = None) -> str:
    """Return a table.

    Args:
        names: Of the columns.
        rows: The cells.
        numbers: How many of the first columns hold numbers.
        marked: Place of the row that stands out.
    """
    kinds = ["number" if place < numbers else "text" for place in range(len(names))]
    head = "".join(tag("th", text(name), kind) for name, kind in zip(names, kinds, strict=True))
    lines = [
        tag("tr", "".join(tag("td", text(cell), kind) for cell, kind in zip(row, kinds, strict=True)), mark)
        for place, row in enumerate(rows)
        for mark in ["best" if place == marked else ""]
    ]
    body = "\n".join(lines)
    return f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def inline(svg: str, name: str) -> str:
    """Return an SVG document as an element of a page, in the page's own colours for text, lines and ground."""
    body = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg.strip())
    body = re.sub(r'<rect width="\d+" height="\d+" fill="white"/>', "", body)
    body = re.sub(r' font-family="[^"]*"', "", body)
    body = body.replace('stroke="black"', 'stroke="var(--ink)"').replace('stroke="white"', 'stroke="var(--card)"')
    return body.replace("<svg ", f'<svg role="img" aria-label="{text(name)}" fill="var(--ink)" ', 1)
