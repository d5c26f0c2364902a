"""The page of a bundle: what is copied, what is served, and to whom."""

import http.client
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.bundle.format import Bundle, file_hash
from tuner.cli.app import call
from tuner.commands.bundles import page
from tuner.commands.bundles.page import BUILT, NEEDED, RUNTIME, add_page, page_files
from tuner.commands.bundles.serve import HEADERS, PageServer
from tuner.errors import BundleError
from tuner.task import InputSpec

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits" / "bundle"
STRAY = "device/state.json"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of what is built, with a small file for each of ONNX Runtime's."""
    folder = tmp_path / "built"
    shutil.copytree(BUILT, folder, ignore=shutil.ignore_patterns(RUNTIME))
    (folder / RUNTIME).mkdir()
    needed = json.loads((folder / NEEDED).read_text())
    for name in needed["files"]:
        (folder / RUNTIME / name).write_text(name)
    hashes = {name: file_hash(folder / RUNTIME / name) for name in needed["files"]}
    (folder / NEEDED).write_text(json.dumps({**needed, "files": hashes}))
    monkeypatch.setattr(page, "BUILT", folder)
    return folder


@pytest.fixture
def site(built: Path, tmp_path: Path) -> Path:
    """Return a bundle with its page, and with a file that is not a part of either."""
    folder = shutil.copytree(DIGITS, tmp_path / "bundle")
    for name, source in page_files().items():
        target = folder / "web" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (folder / STRAY).parent.mkdir()
    (folder / STRAY).write_text("{}")
    return folder


@pytest.fixture
def server(site: Path) -> Iterator[PageServer]:
    with PageServer(site, 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def answer(server: PageServer, path: str, host: str = "localhost") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": f"{host}:{server.server_port}"})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), content


def test_the_page_and_the_bundle_are_served_with_their_policy(server: PageServer, site: Path) -> None:
    status, headers, content = answer(server, "/web/")
    assert (status, content) == (200, (site / "web" / "index.html").read_bytes())
    assert headers.items() >= HEADERS.items()
    assert answer(server, "/model.onnx")[2] == (site / "model.onnx").read_bytes()
    assert answer(server, "/web/ort/ort-wasm-simd-threaded.wasm?v=1")[1]["Content-Type"] == "application/wasm"
    assert answer(server, "/")[1]["Location"] == "/web/"
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", [f"/{STRAY}", "/web/../plan.toml", "/%2e%2e/built/index.html", "//etc/passwd", "/x"])
def test_no_other_file_is_served(server: PageServer, path: str) -> None:
    assert answer(server, path)[0] == 404


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


def test_the_page_is_for_photos(built: Path, tmp_path: Path) -> None:
    info = Bundle.open(DIGITS).info
    with pytest.raises(BundleError, match="takes arrays: leave out --web"):
        add_page(page_files(), tmp_path, info)
    object.__setattr__(info, "input", InputSpec("images", size=8))
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


def test_what_cannot_be_served_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["serve", str(DIGITS)]) == 1
    assert "has no page" in capsys.readouterr().err
    assert call(["serve", str(DIGITS), "--port", "70000"]) == 2
    assert call(["export", str(tmp_path), str(tmp_path / "x"), "--web-runtime", str(tmp_path)]) == 2
    assert "--web-runtime" in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_in_use_is_refused(server: PageServer, site: Path) -> None:
    with pytest.raises(BundleError, match="cannot be used"):
        PageServer(site, server.server_port)
