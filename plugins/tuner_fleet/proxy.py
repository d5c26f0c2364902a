"""Serve a study's database to workers without driver and password: ``python -m tuner_fleet.proxy ADDRESS``."""

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage

from tuner.cli.options import note, print_line
from tuner.errors import RunError, TunerError, UsageError, missing_extra
from tuner_fleet.address import PROXY_PORT, Address, read_address, warn_of_password
from tuner_fleet.storage.drivers import PING_SECONDS
from tuner_fleet.storage.failures import as_text
from tuner_fleet.storage.patient import close, open_storage, wrapped

if TYPE_CHECKING:
    import grpc

VARIABLE = "TUNER_RUN_STUDY"
#: As many as Optuna's own.
THREADS = 10
#: By default a port is shared with any other server that wants it, and clients are cut off that ask for signs of life.
SERVER = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000 * PING_SECONDS // 2),
)


def serve_proxy(address: Address, host: str, port: int, announce: Callable[[str], object]) -> None:
    """Serve a database's studies until the process is ended.

    Args:
        address: Of the database.
        host: Address to listen on.
        port: Port to listen on.
        announce: Called once, when it listens.

    Raises:
        RunError: The database cannot be opened, or the port cannot be used.
    """
    storage = open_storage(address)
    try:
        server, listens = start_proxy(storage, host, port)
        try:
            announce(f"grpc://{host}:{listens} serves {address.shown}; Ctrl-C ends it")
            server.wait_for_termination()
        finally:
            server.stop(None)
    finally:
        close(storage)


def start_proxy(storage: BaseStorage, host: str, port: int) -> "tuple[grpc.Server, int]":
    """Serve a storage by threads of this process.

    Args:
        storage: The database.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.

    Returns:
        The server, to be stopped by the caller; and its port.

    Raises:
        RunError: The port cannot be used.
    """
    try:
        import grpc
        from optuna.storages._grpc.auto_generated import api_pb2_grpc
        from optuna.storages._grpc.servicer import OptunaStorageProxyService
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    server = grpc.server(ThreadPoolExecutor(THREADS), options=SERVER)
    served = type("ServedStorage", (BaseStorage,), wrapped(storage, _naming))()
    api_pb2_grpc.add_StorageServiceServicer_to_server(OptunaStorageProxyService(served), server)  # type: ignore[no-untyped-call]
    if not 0 <= port < 2**16:  # gRPC would take another one
        raise RunError(f"--port must be between 0 and {2**16 - 1}, got {port}")
    try:
        listens = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:  # gRPC's word for a port that is in use
        raise RunError(f"port {port} cannot be used ({error}): give another --port") from None
    server.start()
    return server, listens


def _naming(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose errors say which of the database's they are: they reach a worker as text."""

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except StorageInternalError as error:
            raise StorageInternalError(as_text(error.__cause__ or error)) from error.__cause__

    return call


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tuner_fleet.proxy", description=__doc__)
    parser.add_argument(
        "address",
        nargs="?",
        default=os.environ.get(VARIABLE),
        help=f"the database, such as postgresql://host/db [default: the variable {VARIABLE}]",
    )
    parser.add_argument("--host", default="localhost", help="address to listen on: whoever reaches it may write")
    parser.add_argument("--port", type=int, default=PROXY_PORT)
    options = parser.parse_args(arguments)
    if not options.address:
        parser.error(f"give the address of the database, or set {VARIABLE}")
    try:
        address = read_address(options.address)
        if address.is_proxy:
            raise UsageError("the address must be that of a database, got that of a proxy: correct it")
        warn_of_password(address, note)
        serve_proxy(address, options.host, options.port, print_line)
    except TunerError as error:
        note(f"tuner: {error}")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
