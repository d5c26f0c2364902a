"""The front as pictures, for a notebook."""

from tuner.errors import missing_extra
from tuner.results.run import Run
from tuner_report.charts.drawing import Picture
from tuner_report.fronts import front_pictures

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


def pictures(run: Run) -> str:
    """Return the front against forgetting and against time; nothing where matplotlib is not installed."""
    try:
        drawn = front_pictures(run)
    except ModuleNotFoundError as error:
        if missing_extra(error) is None:
            raise
        return ""
    figures = (
        f"<figure style='width: 26em; margin: 0'>{one.svg}</figure>" for one in drawn if isinstance(one, Picture)
    )
    return f"<div style='{STYLE}'>{''.join(figures)}</div>"
