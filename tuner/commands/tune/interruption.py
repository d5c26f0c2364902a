"""An orderly end on Ctrl-C and SIGTERM."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what only predicts loads nothing of the search
    from tuner.search.processes.guard import Interrupt


@contextmanager
def stopping(interrupt: "Interrupt") -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for an orderly end: what runs reads `interrupt`."""

    def ask(*_: object) -> None:
        interrupt.ask()

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller handles signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that nothing half made stays."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
