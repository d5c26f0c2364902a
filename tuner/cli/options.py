"""What the commands share: options, progress on stderr, and printing that notices when nobody reads."""

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.cli.progress import Progress

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object and nothing else.")]
Flag = Parameter(negative="")
LocalPlugins = Annotated[
    tuple[Path, ...],
    Parameter(
        name="--plugin",
        negative="",
        show_default=False,
        help="A Python file or package with a plugin that is not installed; may be repeated.",
    ),
]


class ReaderGoneError(Exception):
    """Nobody reads stdout any more, as in ``tuner show RUN | head -n 1``."""


def print_line(text: str) -> None:
    """Print a line to stdout at once.

    Raises:
        ReaderGoneError: Nobody reads it.
    """
    try:
        print(printable(text), flush=True)
    except BrokenPipeError:
        raise ReaderGoneError from None


def printable(text: str) -> str:
    """Return text for a terminal: what steers one, as a label or a name from elsewhere may, is replaced by spaces."""
    return text if text.isprintable() else "".join(letter if _is_harmless(letter) else " " for letter in text)


def _is_harmless(letter: str) -> bool:
    return letter in "\n\t" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def stdout_console() -> "Console":
    """Return a console on stdout; printing to it raises `ReaderGoneError` when nobody reads."""
    from rich.console import Console

    class Stdout(Console):
        def print(self, *objects: Any, **settings: Any) -> None:
            super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **settings)

        def on_broken_pipe(self) -> None:
            raise ReaderGoneError

    return Stdout(soft_wrap=True, markup=False, emoji=False)  # a name may hold what looks like either


def progress() -> "Progress":
    """Return a listener that shows progress on stderr."""
    from tuner.cli.progress import Progress

    return Progress()
