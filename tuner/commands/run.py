"""A run as programs and notebooks get it."""

from tuner.errors import missing_extra
from tuner.results import run
from tuner.results.views.html import as_html

#: Colours of the pictures: a notebook's own for text and lines, and ones that are seen on light and on dark.
COLOURS = {
    "ink": "var(--jp-content-font-color1, #1d2126)",
    "muted": "var(--jp-content-font-color2, #6b7480)",
    "grid": "var(--jp-border-color2, #d5d9de)",
    "paper": "var(--jp-layout-color0, #ffffff)",
    "blue": "#2d7fd0",
    "orange": "#e0661b",
    "green": "#2f9a4f",
    "violet": "#8e63c9",
    "grey": "#8b949e",
}
STYLE = "".join(f"--{name}: {value}; " for name, value in COLOURS.items()) + "display: flex; flex-wrap: wrap; gap: 1em"


class Run(run.Run):
    """A finished or interrupted run, as `tuner.run` returns it, or ``tuner.Run.open(folder)`` reads it.

    It shows itself: as one line in a terminal; in a notebook as a table of the front, with two pictures of it where the
    extra ``report`` is installed. Its attributes and methods are those of `tuner.results.run.Run`.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return as_html(self) + _pictures(self)


def _pictures(shown: Run) -> str:
    """Return the front against forgetting and against time; nothing where matplotlib is not installed."""
    from tuner.report.fronts import front_pictures

    try:
        pictures = front_pictures(shown)
    except ModuleNotFoundError as error:
        if missing_extra(error) is None:
            raise
        return ""
    figures = (f"<figure style='width: 26em; margin: 0'>{picture.svg}</figure>" for picture in pictures)
    return f"<div style='{STYLE}'>{''.join(figures)}</div>"
