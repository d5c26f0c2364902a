"""A figure of matplotlib as SVG for a page: text stays text, and colours are the page's, light or dark."""

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from tuner.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that stand for variables of the page's style sheet: no figure uses them for anything else.
INK, MUTED, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, GREEN, VIOLET, GREY = "#050505", "#060606", "#070707", "#080808", "#090909"
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    VIOLET: "violet",
    GREY: "grey",
}
#: Inches of a picture; with the size of its text below, it can be read on a telephone of 400 pixels.
WIDTH, HEIGHT = 4.4, 3.2
SETTINGS: Any = {  # matplotlib names every key in a type
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.size": 9.4,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.8,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page.

    Attributes:
        name: Short name, unique on the page.
        title: Title above it.
        description: What it shows, in words, for those who do not see it.
        svg: The picture.
        caption: Text below it.
    """

    name: str
    title: str
    description: str
    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What would say nothing of this run.

    Attributes:
        title: Title of the picture or section.
        why: Why, as the rest of a sentence.
    """

    title: str
    why: str


@contextmanager
def drawing(width: float = WIDTH, height: float = HEIGHT) -> Iterator[tuple["Figure", "Axes"]]:
    """Yield a figure of inches and its axes, in the style of the page.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of a home that cannot be written: nothing is lost
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ", UserWarning)  # browsers have the letters that its font lacks
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.set_facecolor("none")
        yield figure, axes


def to_svg(figure: "Figure", name: str, title: str, description: str) -> str:
    """Return a figure as an SVG element for a page.

    Args:
        figure: To write.
        name: Prefix of the element's identifiers, unique on the page.
        title: Read out by screen readers.
        description: Likewise.
    """
    content = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(content, format="svg", metadata=nothing, transparent=True)
    svg = printable(content.getvalue(), "\n\xa0\u2060")
    size = re.search(r'viewBox="([^"]+)"', svg)
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{name}-', body).replace("url(#", f"url(#{name}-")
    body = re.sub(r" font-family: [^;\"]+;?", "", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var(--{variable})")
    viewed = size.group(1) if size else "0 0 1 1"
    return (
        f'<svg viewBox="{viewed}" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(printable(title))}</title>'
        f'<desc id="{name}-desc">{escape(printable(description))}</desc>'
        f"{_shorter(body)}</svg>"
    )


def _shorter(body: str) -> str:
    """Leave out what nobody sees: names of groups, line breaks, and of attributes' numbers all but two decimals."""
    body = re.sub(r"<g id=\"[^\"]+\">", "<g>", body)
    body = re.sub(r'="[^"]*"', lambda value: re.sub(r"(\d+\.\d\d)\d+", r"\1", value[0]), body)
    return re.sub(r"\s*\n\s*", " ", body).replace("> <", "><").strip()
