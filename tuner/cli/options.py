"""What the commands share: options, progress on stderr, and printing that notices when nobody reads."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from tuner.printable import printable, wrapped

if TYPE_CHECKING:
    from rich.console import Console

    from tuner.commands.tune.progress import Progress


def _converted(kind: Any, tokens: Sequence[Token]) -> Any:
    """Return an option's value; cyclopts itself would round a number with a decimal point to a whole one."""
    from cyclopts import convert  # not needed for --help

    token = tokens[0]
    if kind in (int, int | None) and not re.fullmatch(r"[+-]?[0-9]{1,18}", token.value):
        place = "" if token.source in {"cli", "env"} else f" in {token.source}"
        raise ValueError(f"{token.keyword or 'it'}{place} must be a whole number, got {token.value[:40]!r}.")
    return convert(kind, tokens)


def _shown_default(value: Any) -> str | None:
    """Return a default for help; nothing of flags that are off, and of lists that are empty."""
    return None if value is None or value is False or value in ("", ()) else str(value)


#: What holds of every option of every command: flags have no ``--no-`` form.
EVERY = Parameter(negative="", converter=_converted, show_default=_shown_default)
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object and nothing else.")]
LocalPlugins = Annotated[
    tuple[Path, ...],
    Parameter(name="--plugin", help="A Python file or package with a plugin that is not installed; may be repeated."),
]

Fetch = Annotated[
    bool,
    Parameter(
        help="Fetch a model of timm or Hugging Face that the task names, if it is not on this device. Weights of "
        "torchvision that a task file names are fetched without it."
    ),
]

Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
OutFile = Annotated[Path, Parameter(name=["--out", "-o"])]
Time = Annotated[str | None, Parameter(metavar="DURATION", help="Limit on the whole command, such as 90s or 10m.")]
Memory = Annotated[
    str | None, Parameter(metavar="SIZE", help="Limit on the memory that the work adds to its process, such as 512MB.")
]


class ReaderGoneError(Exception):
    """Nobody reads stdout any more, as in ``tuner show RUN | head -n 1``."""


def print_line(text: str) -> None:
    """Print a line to stdout at once.

    Raises:
        ReaderGoneError: Nobody reads it.
    """
    try:
        line = printable(text, keep="\n")
        print(line if line.startswith("{") else wrapped(line, sys.stdout), flush=True)  # JSON stays one line
    except BrokenPipeError:
        raise ReaderGoneError from None


def document(schema: str, content: Mapping[str, Any]) -> str:
    """Return a JSON object that names its schema: a file in the folder ``schemas`` of the package that prints it."""
    return json.dumps({"schema": schema, **content}, default=str)


def stdout_console() -> "Console":
    """Return a console on stdout; printing to it raises `ReaderGoneError` when nobody reads."""
    from rich.console import Console

    class Stdout(Console):
        def print(self, *objects: Any, **settings: Any) -> None:
            super().print(*(printable(one, keep="\n") if isinstance(one, str) else one for one in objects), **settings)

        def on_broken_pipe(self) -> None:
            raise ReaderGoneError

    is_terminal = sys.stdout.isatty()  # elsewhere lines stay whole, for programs that read them
    return Stdout(soft_wrap=not is_terminal, markup=False, emoji=False)  # a name may hold what looks like either


def progress() -> "Progress":
    """Return a listener that shows progress on stderr: nothing with -q, refused trials too with -v."""
    from logging import INFO, WARNING, getLogger

    from rich.console import Console

    from tuner.commands.tune.progress import Progress

    logger = getLogger("tuner")  # its level is what -v and -q chose
    quiet, verbose = not logger.isEnabledFor(WARNING), logger.isEnabledFor(INFO)
    return Progress(Console(stderr=True, quiet=quiet), verbose=verbose)


def note(text: str) -> None:
    """Print a message for people to stderr, unless -q was given."""
    from logging import WARNING, getLogger

    if getLogger("tuner").isEnabledFor(WARNING):
        print(wrapped(printable(text, keep="\n"), sys.stderr), file=sys.stderr, flush=True)
