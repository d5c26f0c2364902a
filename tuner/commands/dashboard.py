"""Serve optuna-dashboard on a run, on this device only."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tuner.errors import RunError, missing_extra
from tuner.results.folder import TRIALS
from tuner.results.run import Run

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"


def serve_dashboard(folder: Path, port: int, announce: Callable[[str], object]) -> None:
    """Serve a run until Ctrl-C. Nothing is written into the run's folder, and only this device can connect.

    Args:
        folder: The run's folder.
        port: Port to listen on; 0 for any that is free.
        announce: Called with the address once it answers.

    Raises:
        RunError: The folder is no run, or the port cannot be used.
        TunerError: optuna-dashboard is not installed.
    """
    dashboard = Dashboard(folder)
    try:
        server = make_server(HOST, port, dashboard, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        raise RunError(f"port {port} cannot be used ({error}): give another --port, or none for any free one") from None
    with server:
        dashboard.names = frozenset(f"{name}:{server.server_port}" for name in (HOST, "localhost"))
        announce(f"http://{HOST}:{server.server_port}/")
        serving = Thread(target=server.serve_forever, daemon=True)  # wsgiref would swallow a Ctrl-C during a request
        serving.start()
        try:
            serving.join()
        finally:
            server.shutdown()


class Dashboard:
    """The dashboard of a run as a WSGI application; it follows a run that continues.

    Args:
        folder: The run's folder.

    Attributes:
        names: Values of ``Host`` that are answered: a page from elsewhere, whose name was made to lead here, is not.
    """

    def __init__(self, folder: Path) -> None:
        self.names: frozenset[str] = frozenset()
        self._folder = folder
        self._stamp = self._read_stamp()
        self._app = self._open()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request; the run is read again if it has new trials."""
        if environ.get("HTTP_HOST") not in self.names:
            start_response(f"{HTTPStatus.FORBIDDEN.value} {HTTPStatus.FORBIDDEN.phrase}", [])
            return [b"only this device is answered"]
        if (stamp := self._read_stamp()) != self._stamp:
            self._stamp, self._app = stamp, self._open()
        return self._app(environ, start_response)

    def _open(self) -> "WSGIApplication":
        run = Run.open(self._folder)
        try:
            from tuner.search.dashboard import dashboard_app

            return dashboard_app(run)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None

    def _read_stamp(self) -> tuple[int, int]:
        path = self._folder / TRIALS
        return (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else (0, 0)


class _Quiet(WSGIRequestHandler):
    """Does not print a line for every request."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""
