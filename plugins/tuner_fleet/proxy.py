"""Serve a study's database to workers without driver and password: ``python -m tuner_fleet.proxy ADDRESS``."""

import argparse
import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import run_grpc_proxy_server

from tuner.cli.options import note, print_line
from tuner.errors import RunError, TunerError, UsageError, missing_extra
from tuner_fleet.address import PROXY_PORT, Address, read_address, warn_of_password
from tuner_fleet.storage.failures import as_text
from tuner_fleet.storage.opening import opened
from tuner_fleet.storage.patience import wrapped

VARIABLE = "TUNER_RUN_STUDY"


def serve_proxy(address: Address, host: str, port: int, announce: Callable[[str], object]) -> None:
    """Serve a database's studies until the process is ended.

    Raises:
        TunerError: The database cannot be opened, the port cannot be used, or gRPC is not installed.
    """
    try:
        import grpc  # noqa: F401 - Optuna does once it serves
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    with opened(address) as storage, warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        port = free_port(host, port)
        announce(f"grpc://{host}:{port} serves {address.shown}; Ctrl-C ends it")
        run_grpc_proxy_server(wrapped(storage, _naming), host=host, port=port)


def free_port(host: str, port: int) -> int:
    """Return a port that nobody listens on: gRPC shares one with any other server that wants it.

    Raises:
        RunError: Somebody does, or it is none.
    """
    if not 0 <= port < 2**16:
        raise RunError(f"--port must be between 0 and {2**16 - 1}, got {port}")
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        with socket.create_server((host, port), family=family) as free:
            return int(free.getsockname()[1])
    except OSError as error:
        raise RunError(f"port {port} of {host} cannot be used ({error}): give another --port or --host") from None


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
