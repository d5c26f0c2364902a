"""Bundles of photos, and servers of their pages."""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

Server = TypeVar("Server", bound=ThreadingHTTPServer)
DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "bundle"


def of_photos(folder: Path, name: str = "digits") -> Path:
    """Return a bundle of photos: that of the digits, which nobody opens."""
    shutil.copytree(DIGITS, folder)
    path = folder / "bundle.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "task": name, "input": {"kind": "images", "size": 8}}))
    return folder


@contextmanager
def running(server: Server) -> Iterator[Server]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
