"""Options of every command, wherever they stand before ``--``: -v, -q and --color."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.errors import UsageError, nearest
from tuner.printable import one_line

if TYPE_CHECKING:
    from logging import LogRecord

COLORS = ("auto", "always", "never")
HELP = (
    "Every command takes -v (more messages, such as why trials are refused; -vv for tracebacks and debugging), "
    "-q (no progress and no warnings), and --color auto, always or never (NO_COLOR is obeyed)."
)
#: Variables of the environment that decide on colours, for rich and for what is started.
_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE")


@dataclass(frozen=True, slots=True)
class Common:
    """What the options of every command say, and the other arguments: verbosity is -v minus -q, counted."""

    rest: tuple[str, ...]
    verbosity: int
    color: str


def split(arguments: list[str]) -> Common:
    """Take the common options from a command's arguments."""
    rest, verbosity, color = list[str](), 0, "auto"
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in {"-v", "-vv", "--verbose"}:
            verbosity += 2 if word == "-vv" else 1
        elif word in {"-q", "--quiet"}:
            verbosity -= 1
        elif word == "--color" or word.startswith("--color="):
            color = word.partition("=")[2] if "=" in word else next(words, "")
            if color not in COLORS:
                raise UsageError(f"--color must be one of {', '.join(COLORS)}, got {color!r}{nearest(color, COLORS)}")
        else:
            rest.append(word)
    return Common(tuple(rest), verbosity, color)


@contextmanager
def applied(common: Common) -> Iterator[None]:
    """Show colours and messages of the logger ``tuner`` as the common options say, while a command runs."""
    variables = {name: os.environ.get(name) for name in _VARIABLES}
    _choose_colors(common.color)
    try:
        if {"--help", "-h", "--version"} & {*common.rest}:  # shows no message, and is fast without `logging`
            yield
        else:
            with _logged(common.verbosity):
                yield
    finally:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _logged(verbosity: int) -> Iterator[None]:
    """Print messages of the logger ``tuner`` to stderr, while a command runs."""
    import logging

    class Stderr(logging.Handler):
        """Prints messages; those of a run's progress are shown by the progress itself."""

        def emit(self, record: "LogRecord") -> None:
            if record.name == "tuner.run":
                return
            print(f"{record.levelname.lower()}: {one_line(record.getMessage())}", file=sys.stderr, flush=True)
            if record.exc_info and verbosity > 1:
                print(logging.Formatter().formatException(record.exc_info), file=sys.stderr, flush=True)

    logger, handler = logging.getLogger("tuner"), Stderr()
    level = min(max(logging.WARNING - 10 * verbosity, logging.DEBUG), logging.ERROR)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _choose_colors(color: str) -> None:
    if color == "never":
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    elif color == "always":
        os.environ["FORCE_COLOR"] = "1"
        os.environ.pop("NO_COLOR", None)
        if not sys.stderr.isatty():
            os.environ["TTY_INTERACTIVE"] = "0"  # colours, but no panel that is drawn again and again
