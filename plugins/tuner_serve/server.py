"""Serve a bundle and the package's own page to browsers on this device.

The page is code, and a bundle may come from elsewhere: so nothing that a bundle brings is served as a page. Its files
have types that browsers do not run, and each bundle has an address of its own, at which no other one leaves anything.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tuner.bundle.format import CONFORMANCE, FILE, Bundle
from tuner.commands.bundles.page import FOLDER, RUNTIME, page_files, require_page
from tuner.errors import BundleError
from tuner.reading import open_regular
from tuner.untrusted import inside

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
#: A service worker that another page left at this address: the browser asks for its script anew at each visit.
LEFTOVERS = {"Clear-Site-Data": '"cache", "storage"'}
#: Ports that no service has by convention; which one a bundle has depends on its identity.
FIRST_PORT, PORTS = 49152, 16384
SLOW_SECONDS = 20.0


class PageServer(ThreadingHTTPServer):
    """Serves a bundle as it was exported, the package's page and the conformance set: no other file of the folder.

    Args:
        folder: Folder of the bundle.
        port: Port on this device; 0 for any that is free; None for the bundle's own, or another if that is in use.

    Raises:
        BundleError: It is not a bundle of photos or sounds, the page is not installed, or the port cannot be used.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, port: int | None = None) -> None:
        bundle = Bundle.read(folder)
        require_page(bundle.info)
        own = {name: folder / name for name in (FILE, *bundle.info.files, *_conformance(folder))}
        self.bundle_files = {name: path for name, path in own.items() if not name.startswith(f"{FOLDER}/")}
        self.page = {f"{FOLDER}/{name}": path for name, path in _page(folder).items()}
        preferred = FIRST_PORT + int(bundle.identity[:8], 16) % PORTS
        for number in (preferred, 0) if port is None else (port,):
            try:
                super().__init__(("127.0.0.1", number), _Handler)
            except OSError as error:
                reason = error.strerror
            else:
                return
        number = preferred if port is None else port
        raise BundleError(f"port {number} cannot be used ({reason}): give another one by --port")

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://localhost:{self.server_port}/{FOLDER}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that goes away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _page(folder: Path) -> dict[str, Path]:
    """Return the package's page; ONNX Runtime's files from the bundle where the package has none, by their hashes."""
    try:
        return page_files()
    except BundleError as error:
        with suppress(OSError, BundleError):
            return page_files(inside(folder, f"{FOLDER}/{RUNTIME}"))
        raise error from None


def _conformance(folder: Path) -> Iterator[str]:
    for path in sorted((folder / CONFORMANCE).rglob("*")):
        name = path.relative_to(folder).as_posix()
        with suppress(OSError):  # of a link, which may lead out of the folder
            if inside(folder, name).is_file():
                yield name


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = SLOW_SECONDS

    def do_GET(self) -> None:
        self._answer(content=True)

    def do_HEAD(self) -> None:
        self._answer(content=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing: a browser asks for many files."""

    def _answer(self, *, content: bool) -> None:
        hosts = self.headers.get_all("Host", [])
        try:
            name = unquote(urlsplit(self.path).path).removeprefix("/")
            (host,) = hosts
        except ValueError:  # no address, or not one host
            self._begin(HTTPStatus.BAD_REQUEST, 0)
            return
        if host.partition(":")[0] not in {"localhost", "127.0.0.1"}:  # another name would be another site's page
            self._begin(HTTPStatus.FORBIDDEN, 0)
            return
        if name in {"", FOLDER}:
            self._begin(HTTPStatus.FOUND, 0, Location=f"/{FOLDER}/")
            return
        name = f"{name}index.html" if name == f"{FOLDER}/" else name
        is_page, is_worker = name in self.server.page, "Service-Worker" in self.headers
        path = self.server.page.get(name) or self.server.bundle_files.get(name)
        if path is None or (is_worker and not is_page):
            self._begin(HTTPStatus.NOT_FOUND, 0, **(LEFTOVERS if is_worker else {}))
            return
        try:
            file = open_regular(path)
        except OSError:
            self._begin(HTTPStatus.NOT_FOUND, 0)
            return
        with file:
            kind = TYPES.get(path.suffix, OTHER) if is_page or path.suffix == ".json" else OTHER
            self._begin(HTTPStatus.OK, path.stat().st_size, **{"Content-Type": kind})
            while content and (piece := file.read(_PIECE_BYTES)):
                self.wfile.write(piece)

    def _begin(self, status: HTTPStatus, size: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Length": str(size), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
