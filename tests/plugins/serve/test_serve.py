"""The page of a bundle: what is copied, what is served, and to whom."""

import http.client
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.serve.pages import DIGITS, of_photos, running
from tuner.bundle.format import Bundle
from tuner.cli.app import call
from tuner.commands.bundles.page import BUILT, RUNTIME, add_page, page_files, require_page
from tuner.errors import BundleError
from tuner.task import InputSpec
from tuner_serve.server import HEADERS, PageServer, _Handler

STRAY = "device/state.json"


@pytest.fixture
def site(built: Path, tmp_path: Path) -> Path:
    """Return a bundle with pages of its own, a set of its own, links, and a file that is no part of it."""
    folder = of_photos(tmp_path / "bundle")
    for name in ("web/index.html", "web/evil.js", "web/sw.js", "conformance/set.json", "conformance/evil.html", STRAY):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("evil")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key.txt").write_text("secret")
    (folder / "web" / "linked").symlink_to(secrets)
    (folder / "conformance" / "linked").symlink_to(secrets)
    (folder / "conformance" / "key.txt").symlink_to(secrets / "key.txt")
    return folder


@pytest.fixture
def server(site: Path) -> Iterator[PageServer]:
    server = PageServer(site, 0)
    with running(server):
        yield server


def answer(server: PageServer, path: str, host: str = "localhost", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": f"{host}:{server.server_port}", **headers})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), content


def raw(server: PageServer, lines: str) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(lines.encode())
        return connection.recv(2**16)


def test_the_page_and_the_bundle_are_served_with_their_policy(server: PageServer, site: Path, built: Path) -> None:
    status, headers, content = answer(server, "/web/")
    assert (status, content) == (200, (built / "index.html").read_bytes())
    assert headers.items() >= HEADERS.items()
    assert answer(server, "/model.onnx")[2] == (site / "model.onnx").read_bytes()
    assert answer(server, "/web/ort/ort-wasm-simd-threaded.wasm?v=1")[1]["Content-Type"] == "application/wasm"
    assert answer(server, "/")[1]["Location"] == "/web/"
    assert server.server_address[0] == "127.0.0.1"


def test_nothing_of_a_bundle_is_a_page(server: PageServer, built: Path) -> None:
    assert answer(server, "/web/sw.js")[2] == (built / "sw.js").read_bytes()
    assert answer(server, "/web/evil.js")[0] == 404
    assert answer(server, "/conformance/set.json")[1]["Content-Type"] == "application/json"
    assert answer(server, "/conformance/evil.html")[1]["Content-Type"] == "application/octet-stream"
    assert answer(server, "/conformance/set.json", **{"Service-Worker": "script"})[0] == 404
    status, headers, _ = answer(server, "/web/evil.js", **{"Service-Worker": "script"})
    assert (status, headers["Clear-Site-Data"]) == (404, '"cache", "storage"')


@pytest.mark.parametrize(
    "path",
    [
        *(f"/{STRAY}", "/web/../plan.toml", "/%2e%2e/built/index.html", "//etc/passwd", "/x"),
        *("/web/linked/key.txt", "/conformance/linked/key.txt", "/conformance/key.txt"),
    ],
)
def test_no_other_file_is_served(server: PageServer, path: str) -> None:
    assert answer(server, path)[0] == 404


def test_what_is_no_request_is_answered_quietly(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    for lines in ("GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"):
        assert raw(server, lines).startswith(b"HTTP/1.1 400 ")
    assert raw(server, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    with socket.create_connection(("127.0.0.1", server.server_port)) as gone:
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closed by a reset
        gone.sendall(b"GET / HTTP/1.1\r\nHo")
    assert answer(server, "/web/")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_slow_request_ends(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _Handler.timeout is not None
    monkeypatch.setattr(_Handler, "timeout", 0.05)
    assert raw(server, "GET / HTTP/1.1\r\nHo") == b""


def test_each_bundle_has_an_address_of_its_own(site: Path, tmp_path: Path) -> None:
    other = of_photos(tmp_path / "other", "other")
    with PageServer(site) as one, PageServer(other) as two, PageServer(site) as in_use:
        assert len({one.address, two.address, in_use.address}) == 3
        kept = one.address
    with PageServer(site) as again:
        assert again.address == kept


def test_a_page_of_another_site_gets_nothing(server: PageServer) -> None:
    assert answer(server, "/bundle.json", host="evil.example")[0] == 403


def test_no_file_of_the_page_names_another_origin() -> None:
    files = [path for path in BUILT.iterdir() if path.suffix in {".js", ".html", ".css", ".webmanifest"}]
    assert len(files) >= 5
    for path in files:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}", path.read_text(encoding="utf-8")))
        assert addresses == set(), path.name
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', (BUILT / "index.html").read_text())
    assert policy is not None
    assert HEADERS["Content-Security-Policy"].startswith(policy[1])
    assert policy[1] in (BUILT / "sw.js").read_text().replace('"+"', "")


def test_the_page_is_for_photos_and_sounds(built: Path, tmp_path: Path) -> None:
    info = Bundle.open(DIGITS).info
    with pytest.raises(BundleError, match="takes arrays: leave out --web"):
        add_page(page_files(), tmp_path, info)
    object.__setattr__(info, "input", InputSpec("audio", window=8))
    with pytest.raises(BundleError, match=r"sounds with input\.onnx, but digits takes audio"):  # of an old export
        require_page(info)
    object.__setattr__(info, "files", {**info.files, "input.onnx": ""})
    out = shutil.copytree(DIGITS, tmp_path / "out")
    for path, mode in ((out, 0o700), (out / "bundle.json", 0o600)):  # as an export leaves them
        path.chmod(mode)
    add_page(page_files(), out, info)
    assert (out / "web" / "index.html").is_file()
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (out, *out.rglob("*"))}
    assert modes == {(True, 0o755), (False, 0o644)}  # a web server has a user of its own


def test_the_runtime_must_be_there_and_of_the_right_version(built: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="make web"):
        page_files(tmp_path)
    (built / RUNTIME / "ort.wasm.min.mjs").write_text("another")
    with pytest.raises(BundleError, match="is not that of onnxruntime-web"):
        page_files()


def test_a_bundle_may_bring_the_runtime(built: Path, site: Path) -> None:
    shutil.copytree(built / RUNTIME, site / "web" / RUNTIME)
    shutil.rmtree(built / RUNTIME)
    with PageServer(site, 0) as server:
        assert server.page["web/ort/ort.wasm.min.mjs"].parent == site / "web" / RUNTIME
    (site / "web" / RUNTIME / "ort.wasm.min.mjs").write_text("another")
    with pytest.raises(BundleError, match="make web"):
        PageServer(site, 0)


def test_what_cannot_be_served_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["serve", str(DIGITS)]) == 1
    assert "but digits takes arrays" in capsys.readouterr().err
    assert call(["serve", str(DIGITS), "--port", "70000"]) == 2
    assert call(["export", str(tmp_path), str(tmp_path / "x"), "--web-runtime", str(tmp_path)]) == 2
    assert "--web-runtime" in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_in_use_is_refused(server: PageServer, site: Path) -> None:
    with pytest.raises(BundleError, match="cannot be used"):
        PageServer(site, server.server_port)
