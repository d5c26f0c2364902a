"""An orderly end on Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it closes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what only predicts loads nothing of the search
    from tuner.search.processes.guard import Interrupt


#: Windows has none.
_HANGUP = [signal.Signals[name] for name in ("SIGHUP",) if name in signal.Signals.__members__]


class Interrupted(KeyboardInterrupt):
    """The user ended a call; a notebook shows the lines, which are its arguments, in place of a traceback."""

    def __str__(self) -> str:
        return "\n".join(self.args)

    def _render_traceback_(self) -> list[str]:  # IPython asks for it
        return [*self.args]


@contextmanager
def interrupted_as(*lines: str) -> Iterator[None]:
    """Say what is kept, and how to go on, where the user ends a block that does not say so itself."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(*lines) from None


def stopping(interrupt: "Interrupt") -> AbstractContextManager[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP ask for an orderly end: what runs reads `interrupt`."""
    return _handled(lambda *_: interrupt.ask(), signal.SIGINT, signal.SIGTERM, *_HANGUP)


def terminated_as_interrupted() -> AbstractContextManager[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, so that nothing half made stays."""
    return _handled(signal.default_int_handler, signal.SIGTERM, *_HANGUP)


@contextmanager
def _handled(handler: Callable[..., object], *numbers: signal.Signals) -> Iterator[None]:
    try:
        # nohup ignores SIGHUP; a shell ignores SIGINT for what it starts in the background, which is to be heard
        heard = [one for one in numbers if one not in _HANGUP or signal.getsignal(one) != signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in heard}
    except ValueError:  # not the main thread: the caller handles signals
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
