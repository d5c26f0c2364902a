"""Optuna's storage of a shared study, which waits where the database does not answer."""

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import optuna
from optuna.storages import BaseStorage, get_storage

from tuner.errors import RunError, first_line, missing_extra
from tuner.search.shared.address import PROXY_PORT, Address
from tuner.search.shared.ending import NO_ANSWER, SharedStorage, end_in_parts

#: A storage is asked again after so many seconds, twice as many the next time, at most `LONGEST`.
SHORTEST, LONGEST = 0.2, 5.0
#: Seconds that opening one may take, and how often it is tried: two workers may make the tables at the same time.
OPENING_SECONDS, TRIES = 10, 5
#: Seconds that SQLite waits for another process.
LOCKED_SECONDS = 30

Wait = Callable[[float], None]


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
        if is_outage(error) or isinstance(error, ValueError | ConnectionError | RuntimeError | _database_errors()):
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
    reason = first_line(error).replace(address.url, address.shown)
    return RunError(f"the study {address.shown} cannot be opened ({reason}): see that it runs and lets this device in")


def _database_errors() -> type[BaseException]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError


def _database(address: Address) -> BaseStorage:
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    from tuner.search.shared.database import Database

    arguments: dict[str, Any] = {"pool_pre_ping": True}
    is_file = address.url.startswith("sqlite")
    if is_file:
        arguments["connect_args"] = {"timeout": LOCKED_SECONDS}
    for left in range(TRIES - 1, -1, -1):
        try:
            return get_storage(Database(address.url, engine_kwargs=arguments))
        except (IntegrityError, ProgrammingError) as error:  # another worker makes the same tables
            if not left:
                raise RunError(f"the study {address.shown} cannot be opened: {first_line(error)}") from None
        except OperationalError as error:  # SQLite, and MySQL's driver, have no other word for it
            if not left or not (is_file or "already exists" in str(error)):
                raise
        time.sleep(SHORTEST * 2 ** (TRIES - 1 - left))
    raise AssertionError("unreachable")


def _proxy(address: Address) -> BaseStorage:
    import grpc  # noqa: F401 - Optuna would say no more than that a name is unknown

    parts = urlsplit(address.url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        proxy = optuna.storages.GrpcStorageProxy(host=parts.hostname or "", port=parts.port or PROXY_PORT)
    proxy.wait_server_ready(timeout=OPENING_SECONDS)
    return proxy


def is_outage(error: BaseException) -> bool:
    """Return whether an exception says that the database or the proxy does not answer, but may later."""
    name = type(error).__name__
    if isinstance(error, optuna.exceptions.StorageInternalError):
        # Optuna asks again within the same transaction, which is pending where the first question was cut off.
        return type(error.__cause__).__name__ in {"OperationalError", "InterfaceError", "PendingRollbackError"}
    if name in {"OperationalError", "InterfaceError"} and type(error).__module__.startswith("sqlalchemy"):
        return True
    code = getattr(error, "code", None)
    if not callable(code) or not hasattr(error, "details"):
        return False
    kind, details = getattr(code(), "name", ""), str(error.details())  # gRPC's, which may not be installed
    return kind == "UNAVAILABLE" or (kind == "UNKNOWN" and NO_ANSWER in details)


def refusal(error: Exception) -> RunError | None:
    """Return what to tell the user where a database does not take what it is given; None for all else."""
    if isinstance(error, optuna.exceptions.StorageInternalError) and type(error.__cause__).__name__ == "DataError":
        reason = first_line(error.__cause__ or error)
        return RunError(f"the study's database does not take a record ({reason}): give one whose tables tuner has made")
    return None


class Patience:
    """Asks a storage again and again while it does not answer.

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
        started, pause, waited = time.monotonic(), SHORTEST, False
        try:
            while True:
                try:
                    result = method(*arguments, **named)
                except Exception as error:
                    if (refused := refusal(error)) is not None:
                        raise refused from None
                    if not is_outage(error):
                        raise
                    if not waited:
                        self._say(f"warning: the study's database does not answer ({first_line(error)}): waiting")
                    waited = True
                    self._wait(pause)
                    pause = min(LONGEST, 2 * pause)
                else:
                    if waited:
                        self._say(f"the study's database answers again after {time.monotonic() - started:.0f} s")
                    return result
        finally:
            self.seconds += time.monotonic() - started


def patient(storage: BaseStorage, patience: Patience) -> SharedStorage:
    """Return a storage that is as another one, and waits where that does not answer."""
    backend = getattr(storage, "_backend", None)  # under Optuna's cache of finished trials
    end_trial = getattr(backend, "end_trial", partial(end_in_parts, storage))

    def waiting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(_self: BaseStorage, *arguments: Any, **named: Any) -> Any:
            return patience.call(method, *arguments, **named)

        return call

    names = [name for name in dir(BaseStorage) if not name.startswith("_") and callable(getattr(BaseStorage, name))]
    methods = {name: waiting(getattr(storage, name)) for name in names}
    methods["end_trial"] = waiting(end_trial)
    return cast("SharedStorage", type("PatientStorage", (SharedStorage,), methods)())


def close(storage: BaseStorage) -> None:
    """Give up a storage's connections."""
    inner = getattr(storage, "_backend", storage)
    with suppress(Exception):  # it may be gone already
        if isinstance(inner, optuna.storages.RDBStorage):
            inner.remove_session()
            inner.engine.dispose()
        elif isinstance(inner, optuna.storages.GrpcStorageProxy):
            inner.close()
