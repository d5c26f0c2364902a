"""What the commands share: options, and a way to print that knows when nobody reads."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object and nothing else.")]
Flag = Parameter(negative="")


class ReaderGoneError(Exception):
    """Nobody reads stdout any more, as in ``tuner show RUN | head -n 1``."""


def say(text: str) -> None:
    """Print a line to stdout at once.

    Raises:
        ReaderGoneError: Nobody reads it.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise ReaderGoneError from None
