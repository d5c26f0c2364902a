"""Two bundles on one port in Chromium, one of them with a page that stays: the good page alone loads."""

import re
import shutil
import subprocess
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.plugins.serve.pages import of_photos, running
from tuner_serve import server as served
from tuner_serve.server import PageServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
#: A page that leaves a service worker, which answers in the place of every later page of the address.
EVIL = {
    "index.html": "<title>evil</title><script src=evil.js></script>",
    "evil.js": "navigator.serviceWorker.register('evil-sw.js').then(() => navigator.serviceWorker.ready)",
    "evil-sw.js": """
        addEventListener('install', () => skipWaiting());
        addEventListener('activate', (event) => event.waitUntil(clients.claim()));
        const page = () => new Response('<title>evil worker</title>', {headers: {'Content-Type': 'text/html'}});
        addEventListener('fetch', (event) => event.request.mode === 'navigate' && event.respondWith(page()));
    """,
}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class Browser:
    """Chromium with one profile."""

    def __init__(self, profile: Path) -> None:
        self._command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]

    def title(self, address: str) -> str:
        command = [*self._command, "--virtual-time-budget=3000", "--dump-dom", address]
        page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
        found = re.search("<title>(.*?)</title>", page)
        return found[1] if found else ""

    def stay_until(self, event: threading.Event, address: str) -> None:
        command = [*self._command, "--remote-debugging-port=0", address]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as open_window:
            seen = event.wait(60)
            time.sleep(1)  # the browser clears what it was told to after the answer
            open_window.terminate()
        assert seen


def evil(folder: Path) -> Path:
    of_photos(folder, "evil")
    (folder / "web").mkdir()
    for name, content in EVIL.items():
        (folder / "web" / name).write_text(content)
    return folder


def test_a_bundle_from_elsewhere_leaves_nothing_for_the_next_one(built: Path, tmp_path: Path) -> None:
    browser, own = Browser(tmp_path / "profile"), re.search("<title>(.*?)</title>", (built / "index.html").read_text())
    assert own is not None
    first = PageServer(evil(tmp_path / "evil"), 0)
    port = first.server_port
    with running(first):
        assert [browser.title(first.address) for _ in range(2)] == [own[1]] * 2
    with running(PageServer(of_photos(tmp_path / "good"), port)) as second:
        assert [browser.title(second.address) for _ in range(2)] == [own[1]] * 2


def test_what_another_page_left_at_the_address_is_removed(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, asked = Browser(tmp_path / "profile"), threading.Event()
    folder = evil(tmp_path / "evil")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    address = f"http://localhost:{server.server_port}/web/"
    with running(server):
        assert any(browser.title(address) == "evil worker" for _ in range(10))  # it may be closed before it is in place
    answer = served._Handler._answer

    def noting(handler: served._Handler, *, content: bool) -> None:
        answer(handler, content=content)
        if "Service-Worker" in handler.headers and handler.path.endswith("evil-sw.js"):
            asked.set()

    monkeypatch.setattr(served._Handler, "_answer", noting)
    with running(PageServer(of_photos(tmp_path / "good"), server.server_port)):
        browser.stay_until(asked, address)
        assert browser.title(address) not in {"evil", "evil worker"}
