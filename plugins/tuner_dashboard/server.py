"""Serve optuna-dashboard on a run, on this device only."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, make_server

from tuner.commands.runs.source import study_reader
from tuner.errors import RunError, missing_extra
from tuner.plugin.studies import StudyReader
from tuner.reading import is_address
from tuner.results.folder import TRIALS
from tuner.results.run import Run

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


HOST = "127.0.0.1"


def serve_dashboard(place: str | Path, port: int, announce: Callable[[str], object]) -> None:
    """Serve a run until Ctrl-C. Nothing is written into the run's folder, and only this device can connect.

    Args:
        place: The run's folder, or the address of a study that several workers share, to which nothing is written.
        port: Port to listen on; 0 for any that is free.
        announce: Called with the address once it answers.

    Raises:
        RunError: The folder is no run, or the port cannot be used.
        TunerError: optuna-dashboard is not installed.
    """
    with followed(place) as source:
        _serve(Dashboard(source), port, announce)


def _serve(dashboard: "Dashboard", port: int, announce: Callable[[str], object]) -> None:
    try:
        server = make_server(HOST, port, dashboard, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        raise RunError(f"port {port} cannot be used ({error}): give another --port, or none for any free one") from None
    with server:
        dashboard.names = frozenset(f"{name}:{server.server_port}" for name in (HOST, "localhost"))
        announce(f"http://{HOST}:{server.server_port}{dashboard.path}")
        serving = Thread(target=server.serve_forever, daemon=True)  # wsgiref would swallow a Ctrl-C during a request
        serving.start()
        try:
            serving.join()
        finally:
            server.shutdown()


class Dashboard:
    """The dashboard of a run as a WSGI application; it follows a run that continues.

    Args:
        source: The run.

    Attributes:
        path: Of the study's own page.
        names: Values of ``Host`` that are answered: a page from elsewhere, whose name was made to lead here, is not.
    """

    def __init__(self, source: "Source") -> None:
        self.names: frozenset[str] = frozenset()
        self._source = source
        self._stamp = source.stamp()
        self._app, self.path = self._open()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a request; the run is read again if it has new trials."""
        if environ.get("HTTP_HOST") not in self.names:
            start_response(f"{HTTPStatus.FORBIDDEN.value} {HTTPStatus.FORBIDDEN.phrase}", [])
            return [b"only this device is answered"]
        if (stamp := self._source.stamp()) != self._stamp:
            self._stamp, (self._app, self.path) = stamp, self._open()
        return self._app(environ, start_response)

    def _open(self) -> "tuple[WSGIApplication, str]":
        run = self._source.open()
        try:
            from tuner_dashboard.study import dashboard_app

            return dashboard_app(run)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None


class Source:
    """A run that may continue.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def stamp(self) -> tuple[int, int]:
        """Return what changes with every new trial."""
        path = self._folder / TRIALS
        return (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else (0, 0)

    def open(self) -> Run:
        """Read the run as it is now."""
        return Run.open(self._folder)


class StudySource(Source):
    """A study that several workers share.

    Args:
        reader: Of the study.
        folder: Where its copy is written.
    """

    def __init__(self, reader: StudyReader, folder: Path) -> None:
        super().__init__(folder)
        self._reader = reader

    def stamp(self) -> tuple[int, int]:
        """Return the number of trials that have ended."""
        return self._reader.finished(), 0

    def open(self) -> Run:
        """Copy the study, and read the copy."""
        self._reader.write(self._folder)
        return super().open()


@contextmanager
def followed(place: str | Path) -> Iterator[Source]:
    """Give a run, or a shared study, whose new trials are followed.

    Args:
        place: A run's folder, or the address of a study.
    """
    if not is_address(place):
        yield Source(Path(place))
        return
    try:
        with study_reader(str(place)) as reader, tempfile.TemporaryDirectory(prefix="tuner-study-") as folder:
            yield StudySource(reader, Path(folder))
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


class _Quiet(WSGIRequestHandler):
    """Does not print a line for every request."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""
