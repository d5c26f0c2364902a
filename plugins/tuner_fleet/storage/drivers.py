"""How a database and Optuna's proxy are connected to: no connection that is dead is waited for without an end."""

import warnings
from typing import Any
from urllib.parse import urlsplit

import optuna
from optuna.storages import GrpcStorageProxy

from tuner_fleet.address import PROXY_PORT, Address

#: Seconds that SQLite waits for another process.
LOCKED_SECONDS = 30
#: Seconds that connecting may take.
CONNECTING_SECONDS = 10
#: Options of drivers by name, which the address may set otherwise: a device that is gone is noticed within two minutes.
_POSTGRESQL = {
    "connect_timeout": CONNECTING_SECONDS,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}
_MYSQL = {"connect_timeout": CONNECTING_SECONDS, "read_timeout": 60, "write_timeout": 60}
DEFAULTS = {
    "psycopg": _POSTGRESQL,
    "psycopg2": _POSTGRESQL,
    "pymysql": _MYSQL,
    "mysqldb": _MYSQL,
    "pysqlite": {"timeout": LOCKED_SECONDS},
}
#: The same for gRPC's channel; the proxy takes pings as often, see `tuner_fleet.proxy`.
PING_SECONDS = 20
CHANNEL = (
    ("grpc.max_receive_message_length", -1),  # as Optuna's own
    ("grpc.keepalive_time_ms", 1000 * PING_SECONDS),
    ("grpc.keepalive_timeout_ms", 1000 * PING_SECONDS),
    ("grpc.http2.max_pings_without_data", 0),
)


def engine_arguments(address: Address) -> dict[str, Any]:
    """Return what SQLAlchemy's engine is made with."""
    from sqlalchemy.engine import make_url

    url = make_url(address.url)
    driver = url.get_dialect().driver
    options = {name: value for name, value in DEFAULTS.get(driver, {}).items() if name not in url.query}
    return {"pool_pre_ping": True, "connect_args": options}


def connect_proxy(address: Address) -> GrpcStorageProxy:
    """Return Optuna's storage behind its proxy, with `CHANNEL`; it is not connected yet.

    Raises:
        ModuleNotFoundError: gRPC is not installed.
    """
    import grpc
    from optuna.storages._grpc.auto_generated import api_pb2_grpc
    from optuna.storages._grpc.client import GrpcClientCache

    class Proxy(GrpcStorageProxy):
        def _setup(self) -> None:
            self._channel = grpc.insecure_channel(f"{self._host}:{self._port}", options=CHANNEL)
            self._stub = api_pb2_grpc.StorageServiceStub(self._channel)  # type: ignore[no-untyped-call]
            self._cache = GrpcClientCache(self._stub)

    parts = urlsplit(address.url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return Proxy(host=parts.hostname or "", port=parts.port or PROXY_PORT)
