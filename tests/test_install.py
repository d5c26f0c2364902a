"""What `make` installs with: the probe of PyTorch's index, and which installer takes what from where."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_docs import program

ROOT = Path(__file__).parent.parent
INDEX = "https://download.pytorch.org/whl/cpu"


@pytest.fixture
def tool() -> ModuleType:
    return program(ROOT / "tools" / "install.py")


@pytest.fixture
def index() -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/whl/torch/" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_index_answers_or_does_not(tool: ModuleType, index: str) -> None:
    assert tool.answers(f"{index}/whl")
    assert not tool.answers(f"{index}/other")


def test_an_index_that_is_silent_or_looked_up_for_ever_is_left_in_time(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and says nothing
        assert not tool.answers(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.2)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(600) and [])
        assert not tool.answers(INDEX, seconds=0.2)
    release.set()


def test_the_index_is_the_one_that_uv_reads(tool: ModuleType) -> None:
    assert tool.cpu_index() == INDEX
    torch, torchvision = tool.pinned("torch", "torchvision")
    assert (torch.split("==")[0], torchvision.split("==")[0]) == ("torch", "torchvision")


def contains(part: str, line: str) -> bool:
    return part in line


def commands(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uv: str | None, fails: Callable[[str], bool]
) -> list[str]:
    """Return the commands of an install, without their constraints; those that ``fails`` names fail."""
    ran: list[str] = []

    def run(*command: str | Path) -> bool:
        words = [str(word) for word in command]
        line = " ".join(words).replace(str(tmp_path), "ENV").replace(f"--constraint {tool.PINS} ", "")
        ran.append(line.replace("--disable-pip-version-check ", "").replace(sys.executable, "python"))
        return not fails(line)

    monkeypatch.setattr(tool, "run", run)
    installer = tool.Installer(tmp_path, uv)
    installer.install_torch(INDEX)
    installer.install_rest("demo")
    return ran


TORCH = "--no-deps torch=="
FROM_INDEX = f"--no-deps --index-url {INDEX} torch=="


@pytest.mark.parametrize(
    ("uv", "there", "broken", "torch"),
    [
        (None, True, "nothing", [f"pip install {FROM_INDEX}"]),
        (None, False, "nothing", [f"pip install {TORCH}"]),
        (None, True, INDEX, [f"pip install {FROM_INDEX}", f"pip install {TORCH}"]),
        ("uv", True, "nothing", [f"uv pip install --python ENV/bin/python {FROM_INDEX}"]),
        ("uv", False, "nothing", [f"pip install {TORCH}"]),
    ],
)
def test_pytorch_comes_from_its_index_or_from_where_pip_finds_it(
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    uv: str | None,
    there: bool,
    broken: str,
    torch: list[str],
) -> None:
    monkeypatch.setattr(tool, "answers", lambda _: there)
    ran = commands(tool, monkeypatch, tmp_path, uv, partial(contains, broken))
    rest = [line for line in ran if "torch==" not in line]
    for line, start in zip([one for one in ran if "torch==" in one], torch, strict=True):
        assert start in line
    assert rest[0] == "python -m venv ENV"
    assert all(("uv pip install" in line) == (uv is not None) for line in rest[1:])
    assert rest[-1].endswith(f"--no-build-isolation --editable {ROOT}[demo]")


def test_pip_takes_over_where_uv_fails_and_an_install_that_fails_says_so(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "answers", lambda _: True)
    ran = commands(tool, monkeypatch, tmp_path, "uv", lambda line: line.startswith("uv pip"))
    assert f"pip install {FROM_INDEX}" in ran[2]
    assert ran[-1].startswith("ENV/bin/python -m pip install")
    failures = {"torch": "PyTorch could not", "editable": "the install failed", "venv": "no environment"}
    for broken, line in failures.items():
        with pytest.raises(SystemExit, match=line):
            commands(tool, monkeypatch, tmp_path, None, partial(contains, broken))


def made(target: str, folder: Path, **variables: str) -> str:
    """Return what ``make`` would run next to copies of the files it reads, with no variable but the search path."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        if not (folder / name).exists():
            shutil.copy(ROOT / name, folder)
    done = subprocess.run(
        ["make", "--dry-run", target],  # noqa: S607
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_demo_installs_its_extra_only_and_nothing_twice(tmp_path: Path) -> None:
    assert "tools/install.py .venv demo" in made("demo", tmp_path)
    assert "tools/install.py .venv test" in made("test", tmp_path)
    (tmp_path / ".venv").mkdir()
    for stamp in (".installed-demo", ".installed"):
        (tmp_path / ".venv" / stamp).touch()
    assert "tools/install.py" not in made("demo", tmp_path) + made("test", tmp_path)


def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    assert "tuner needs Python 3.11 or newer" in made("demo", tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
