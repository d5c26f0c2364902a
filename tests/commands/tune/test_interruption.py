"""A terminal that closes ends a command as Ctrl-C does; nohup keeps it."""

import os
import signal

import pytest

from tuner.commands.interruption import stopping, terminated_as_interrupted
from tuner.search.processes.guard import Interrupt


def test_a_terminal_that_closes_asks_for_an_orderly_end() -> None:
    interrupt = Interrupt()
    with stopping(interrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    assert interrupt.asked
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        os.kill(os.getpid(), signal.SIGHUP)


def test_nohup_is_obeyed() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminated_as_interrupted():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
