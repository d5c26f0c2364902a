"""Optuna's proxy of a database: workers ask it, and need neither the database's driver nor its password."""

import warnings
from collections.abc import Callable

import optuna

from tuner.errors import RunError, missing_extra
from tuner.search.shared.address import Address
from tuner.search.shared.storage import close, open_storage


def serve_proxy(address: Address, host: str, port: int, announce: Callable[[str], object]) -> None:
    """Serve a database's studies until the process is ended.

    Args:
        address: Of the database.
        host: Address to listen on.
        port: Port to listen on.
        announce: Called once before it listens.

    Raises:
        RunError: The database cannot be opened, or the port cannot be used.
    """
    storage = open_storage(address)
    try:
        announce(f"grpc://{host}:{port} serves {address.shown}; Ctrl-C ends it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.run_grpc_proxy_server(storage, host=host, port=port)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    except RuntimeError as error:  # gRPC's word for a port that is in use
        raise RunError(f"port {port} cannot be used ({error}): give another --port") from None
    finally:
        close(storage)
