"""Optuna's storage of a shared study, which waits where the database does not answer."""

import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import Any, cast

from optuna.storages import BaseStorage

from tuner_fleet.storage.failures import is_outage, reason_of, refusal

#: A storage is asked again after so many seconds, twice as many the next time, at most `LONGEST`.
SHORTEST, LONGEST = 0.2, 5.0
#: Seconds after which a call that has not returned may be left behind, as the time is up or the user asked for the end;
#: and after which it is said not to answer.
LEFT_SECONDS, SILENT_SECONDS = 2.0, 10.0

Method = Callable[..., Any]


class Patience:
    """Asks a storage again and again while it does not answer.

    Each call is a thread's: a database may also be silent for ever, and no driver returns then. Where the wait ends,
    the thread is left behind with its connection, which nothing else uses any more.

    Args:
        wait: Sleeps so many seconds; raises where there is no more time to wait.
        say: Receives a message when it begins to wait, and when the storage answers again.

    Attributes:
        seconds: Time that the storage took, waiting included.
    """

    def __init__(self, wait: Callable[[float], None], say: Callable[[str], object]) -> None:
        self._wait, self._say = wait, say
        self.seconds = 0.0

    def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Return what a method returns, as soon as it does."""
        started, pause, reasons = time.monotonic(), SHORTEST, list[str]()

        def silent(reason: str) -> None:
            if not reasons:
                self._say(f"warning: the study's database does not answer ({reason}): waiting")
            reasons.append(reason)

        try:
            while True:
                try:
                    result = self._answer(partial(method, *arguments, **named), silent)
                except Exception as error:
                    if is_outage(error):
                        silent(reason_of(error))
                    elif (refused := refusal(error)) is not None:
                        raise refused from None
                    else:
                        raise
                    self._wait(pause)
                    pause = min(LONGEST, 2 * pause)
                else:
                    if reasons:
                        self._say(f"the study's database answers again after {time.monotonic() - started:.0f} s")
                    return result
        finally:
            self.seconds += time.monotonic() - started

    def _answer(self, ask: Callable[[], Any], silent: Callable[[str], None]) -> Any:
        """Ask in a thread, and return its answer unless `wait` raises before."""
        answer, asked = Future[Any](), time.monotonic()
        Thread(target=_settle, args=(answer, ask), name="storage", daemon=True).start()
        while futures.wait((answer,), LEFT_SECONDS).not_done:
            self._wait(0.0)
            if time.monotonic() - asked >= SILENT_SECONDS:
                silent(f"silent for {SILENT_SECONDS:.0f} s")
        return answer.result()


def _settle(answer: "Future[Any]", ask: Callable[[], Any]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - of any class: it is raised where the answer is waited for
        answer.set_exception(error)


def patient(storage: BaseStorage, patience: Patience) -> BaseStorage:
    """Return a storage that is as another one, and waits where that does not answer."""

    def wrap(method: Method) -> Method:
        return partial(patience.call, method)

    return wrapped(storage, wrap)


def wrapped(storage: BaseStorage, wrap: Callable[[Method], Method]) -> BaseStorage:
    """Return a storage whose methods are those of another one, each wrapped."""
    names = [name for name in dir(BaseStorage) if not name.startswith("_") and callable(getattr(BaseStorage, name))]
    methods = {name: staticmethod(wrap(getattr(storage, name))) for name in names}
    return cast("BaseStorage", type("WrappedStorage", (BaseStorage,), methods)())
