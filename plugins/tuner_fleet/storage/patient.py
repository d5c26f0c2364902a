"""Optuna's storage of a shared study, which waits where the database does not answer."""

import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import optuna
from optuna.storages import BaseStorage, get_storage

from tuner.errors import RunError, first_line, missing_extra
from tuner_fleet.address import Address
from tuner_fleet.storage.failures import is_outage, reason_of, refusal
from tuner_fleet.storage.finish import SharedStorage, end_in_parts

#: A storage is asked again after so many seconds, twice as many the next time, at most `LONGEST`.
SHORTEST, LONGEST = 0.2, 5.0
#: Seconds that opening one may take, and how often it is tried: two workers may make the tables at the same time.
OPENING_SECONDS, TRIES = 10, 5
#: Seconds after which a call that has not returned may be left behind, as the time is up or the user asked for the end;
#: and after which it is said not to answer.
LEFT_SECONDS, SILENT_SECONDS = 2.0, 10.0

Wait = Callable[[float], None]
Method = Callable[..., Any]


def open_storage(address: Address, *, exists: bool = False) -> BaseStorage:
    """Open a storage; of a database the tables are made where there are none.

    Args:
        address: Where it is.
        exists: Whether it must exist: SQLite would make an empty file for whoever reads one that does not.

    Raises:
        RunError: It cannot be opened, or does not exist.
        TunerError: The driver is not installed.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if exists:
            _check_file(address)
        return _proxy(address) if address.is_proxy else _database(address)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or _unopened(address, error) from None
    except ImportError as error:  # Optuna's own, of a driver
        cause = error.__cause__
        known = missing_extra(cause) if isinstance(cause, ModuleNotFoundError) else None
        raise known or _unopened(address, cause or error) from None
    except RunError:
        raise
    except Exception as error:
        # a RuntimeError is a driver's, which needs a library more for some way to log in
        plain = ValueError | ConnectionError | RuntimeError | _database_errors()
        if is_outage(error) or refusal(error) is not None or isinstance(error, plain):
            raise _unopened(address, error) from None
        raise


def _check_file(address: Address) -> None:
    from sqlalchemy.engine import make_url

    file = make_url(address.url).database if address.url.startswith("sqlite") else None
    if file and not file.startswith(("file:", ":")) and not Path(file).exists():
        raise RunError(f"there is no study at {address.shown}, as there is no such file: correct the address")


def _unopened(address: Address, error: BaseException) -> RunError:
    if isinstance(error, ModuleNotFoundError):
        return RunError(f"{address.shown} needs {error.name}, which is not installed: pip install it")
    reason = reason_of(error).replace(address.url, address.shown)
    return RunError(f"the study {address.shown} cannot be opened ({reason}): see that it runs and lets this device in")


def _database_errors() -> type[BaseException]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError


def _database(address: Address) -> BaseStorage:
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    from tuner_fleet.storage.database import Database
    from tuner_fleet.storage.drivers import engine_arguments

    is_file = address.url.startswith("sqlite")
    for left in range(TRIES - 1, -1, -1):
        try:
            return get_storage(Database(address.url, engine_kwargs=engine_arguments(address)))
        except (IntegrityError, ProgrammingError) as error:  # another worker makes the same tables
            if not left:
                raise RunError(f"the study {address.shown} cannot be opened: {first_line(error)}") from None
        except OperationalError as error:  # SQLite, and MySQL's driver, have no other word for it
            if not left or not (is_file or "already exists" in str(error)):
                raise
        time.sleep(SHORTEST * 2 ** (TRIES - 1 - left))
    raise AssertionError("unreachable")


def _proxy(address: Address) -> BaseStorage:
    from tuner_fleet.storage.drivers import connect_proxy

    proxy = connect_proxy(address)
    proxy.wait_server_ready(timeout=OPENING_SECONDS)
    return proxy


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

    def __init__(self, wait: Wait, say: Callable[[str], object]) -> None:
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


def patient(storage: BaseStorage, patience: Patience) -> SharedStorage:
    """Return a storage that is as another one, and waits where that does not answer."""
    backend = getattr(storage, "_backend", None)  # under Optuna's cache of finished trials
    end_trial = getattr(backend, "end_trial", partial(end_in_parts, storage))

    def wrap(method: Method) -> Method:
        return partial(patience.call, method)

    methods = wrapped(storage, wrap) | {"end_trial": staticmethod(wrap(end_trial))}
    return cast("SharedStorage", type("PatientStorage", (SharedStorage,), methods)())


def wrapped(storage: BaseStorage, wrap: Callable[[Method], Method]) -> dict[str, Any]:
    """Return the methods of Optuna's storages, as a class holds them, each that of a storage and wrapped."""
    names = [name for name in dir(BaseStorage) if not name.startswith("_") and callable(getattr(BaseStorage, name))]
    return {name: staticmethod(wrap(getattr(storage, name))) for name in names}


def close(storage: BaseStorage) -> None:
    """Give up a storage's connections."""
    inner = getattr(storage, "_backend", storage)
    with suppress(Exception):  # it may be gone already
        if isinstance(inner, optuna.storages.RDBStorage):
            inner.remove_session()
            inner.engine.dispose()
        elif isinstance(inner, optuna.storages.GrpcStorageProxy):
            inner.close()
