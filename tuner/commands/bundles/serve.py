"""Serve a bundle and its page to browsers on this device."""

from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tuner.bundle.format import CONFORMANCE, FILE, Bundle
from tuner.commands.bundles.page import FOLDER
from tuner.errors import BundleError
from tuner.reading import open_regular

_PIECE_BYTES = 2**18
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}
OTHER = "application/octet-stream"
#: What the page may load: its own address alone. The first three let it use threads.
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
        "img-src 'self' blob:; media-src 'self' blob:; style-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PageServer(ThreadingHTTPServer):
    """Serves a bundle as it was exported, its page and its conformance set: no other file of the folder.

    Args:
        folder: Folder of the bundle.
        port: Port on this device; 0 for any that is free.

    Raises:
        BundleError: It is not a bundle, has no page, or the port cannot be used.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        info = Bundle.read(folder).info
        if not (folder / FOLDER / "index.html").is_file():
            raise BundleError(f"{folder} has no page: `tuner export RUN OUT --web` adds one")
        self.files: Mapping[str, Path] = {name: folder / name for name in (FILE, *info.files)} | {
            path.relative_to(folder).as_posix(): path
            for own in (FOLDER, CONFORMANCE)
            for path in (folder / own).rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise BundleError(f"port {port} cannot be used ({error.strerror}): give another one by --port") from None

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://localhost:{self.server_port}/{FOLDER}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(content=True)

    def do_HEAD(self) -> None:
        self._answer(content=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing: a browser asks for many files."""

    def _answer(self, *, content: bool) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in {"localhost", "127.0.0.1"}:  # another name that leads here would be another site's page
            self._begin(HTTPStatus.FORBIDDEN)
            return
        name = unquote(urlsplit(self.path).path).removeprefix("/")
        if name in {"", FOLDER}:
            self._begin(HTTPStatus.FOUND, Location=f"/{FOLDER}/")
            return
        path = self.server.files.get(f"{name}index.html" if name == f"{FOLDER}/" else name)
        if path is None:
            self._begin(HTTPStatus.NOT_FOUND)
            return
        try:
            with open_regular(path) as file:
                self._begin(HTTPStatus.OK, path.stat().st_size, **{"Content-Type": TYPES.get(path.suffix, OTHER)})
                while content and (piece := file.read(_PIECE_BYTES)):
                    self.wfile.write(piece)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except OSError:
            self._begin(HTTPStatus.NOT_FOUND)

    def _begin(self, status: HTTPStatus, size: int = 0, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Length": str(size), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
