"""Optuna's storage of a shared study, opened and closed: in a database, or behind Optuna's proxy."""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import optuna
from optuna.storages import BaseStorage, GrpcStorageProxy, RDBStorage, get_storage

from tuner.errors import RunError, missing_extra
from tuner_fleet.address import PROXY_PORT, Address
from tuner_fleet.storage.damaged import ReadableStorage
from tuner_fleet.storage.failures import is_outage, reason_of, refusal

#: Seconds that reaching the proxy may take.
OPENING_SECONDS = 10
#: Two workers may make the tables at the same time: how often it is tried, and seconds before the second time.
TRIES, PAUSE = 5, 0.2
#: Options of drivers by name, which the address may set otherwise: a device that is gone is noticed within two minutes.
_POSTGRESQL = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}
_MYSQL = {"connect_timeout": 10, "read_timeout": 60, "write_timeout": 60}
DEFAULTS = {
    "psycopg": _POSTGRESQL,
    "psycopg2": _POSTGRESQL,
    "pymysql": _MYSQL,
    "mysqldb": _MYSQL,
    "pysqlite": {"timeout": 30},
}


@contextmanager
def opened(address: Address, *, exists: bool = False) -> Iterator[BaseStorage]:
    """Give a storage until the end of the block; of a database the tables are made where there are none.

    Args:
        address: Where it is.
        exists: Whether it must exist: SQLite would make an empty file for whoever reads one that does not.

    Raises:
        TunerError: It cannot be opened, or does not exist; or its driver is not installed.
    """
    # that a database is gone is said by `Patience`, in one line
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        if exists:
            _check_file(address)
        storage, close = _proxy(address) if address.is_proxy else _database(address)
    except ImportError as error:  # Optuna's own, of a driver, has a cause
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__ or error
        if not isinstance(cause, ModuleNotFoundError):
            raise _unopened(address, cause) from None
        line = f"{address.shown} needs {cause.name}, which is not installed: pip install it"
        raise missing_extra(cause) or RunError(line) from None
    except (ValueError, ConnectionError, RuntimeError) as error:  # of a driver
        raise (error if isinstance(error, RunError) else _unopened(address, error)) from None
    except Exception as error:
        if is_outage(error) or refusal(error) is not None:
            raise _unopened(address, error) from None
        raise
    try:
        yield storage
    finally:
        with suppress(Exception):  # it may be gone already
            close()


def engine_arguments(address: Address) -> dict[str, Any]:
    """Return what SQLAlchemy's engine is made with."""
    from sqlalchemy.engine import make_url

    url = make_url(address.url)
    driver = url.get_dialect().driver
    options = {name: value for name, value in DEFAULTS.get(driver, {}).items() if name not in url.query}
    return {"pool_pre_ping": True, "connect_args": options}


def _check_file(address: Address) -> None:
    from sqlalchemy.engine import make_url

    file = make_url(address.url).database if address.url.startswith("sqlite") else None
    if file and not file.startswith(("file:", ":")) and not Path(file).exists():
        raise RunError(f"there is no study at {address.shown}, as there is no such file: correct the address")


def _unopened(address: Address, error: BaseException) -> RunError:
    reason = address.hidden(reason_of(error))
    return RunError(f"the study {address.shown} cannot be opened ({reason}): see that it runs and lets this device in")


def _database(address: Address) -> tuple[BaseStorage, Callable[[], None]]:
    from sqlalchemy import NullPool
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    arguments, is_file = engine_arguments(address), address.url.startswith("sqlite")
    file = make_url(address.url).database if is_file else None
    if file and not file.startswith(("file:", ":")):
        with suppress(OSError):  # opening it says why
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # the database itself would leave it to the umask
    for tried in range(1, TRIES + 1):
        try:  # without a pool, no connection stays open where this fails
            RDBStorage(address.url, engine_kwargs={**arguments, "poolclass": NullPool}).remove_session()
            break
        except (IntegrityError, ProgrammingError, OperationalError) as error:
            is_made = not isinstance(error, OperationalError) or is_file or "already exists" in str(error)
            if tried == TRIES or not is_made:
                raise
            time.sleep(PAUSE * 2 ** (tried - 1))
    database = ReadableStorage(address.url, engine_kwargs=arguments, skip_table_creation=True)

    def close() -> None:
        database.remove_session()
        database.engine.dispose()

    return get_storage(database), close


def _proxy(address: Address) -> tuple[BaseStorage, Callable[[], None]]:
    parts = urlsplit(address.url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        proxy = GrpcStorageProxy(host=parts.hostname or "", port=parts.port or PROXY_PORT)
    proxy.wait_server_ready(timeout=OPENING_SECONDS)
    return proxy, proxy.close
