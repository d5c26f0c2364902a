"""A whole run, watched: nothing leaves the device, nothing is readable by others, what is forgotten is nowhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.tiny_task import write_all
from tuner.store.store import Store
from tuner.task import open_task

pytestmark = pytest.mark.slow
#: Imported by every Python process: notes each socket of the internet, and refuses it; and what is imported once a
#: trial is recorded.
SITE = """
import os
import socket
import sys

recorded = []

def watch(event, arguments):
    if event == "open" and str(arguments[0]).endswith("trials.jsonl") and arguments[2] & os.O_APPEND:
        recorded.append(os.getpid())
        with open({log!r}, "a") as log:
            log.write("recorded\\n")
    library = arguments[0].partition(".")[0] if event == "import" and os.getpid() in recorded else ""
    if library and library not in sys.stdlib_module_names | {{"tuner"}} and not library.startswith("tuner_"):
        with open({log!r}, "a") as log:
            log.write(f"late {{arguments[0]}}\\n")
    if event == "socket.__new__" and arguments[1] in (socket.AF_INET, socket.AF_INET6):
        with open({log!r}, "a") as log:
            log.write(f"{{sys.argv}} {{arguments[1:]}}\\n")
        raise OSError("no network here")
    if event == "tuner.test":
        with open({log!r}, "a") as log:
            log.write("watched\\n")

sys.addaudithook(watch)
sys.audit("tuner.test")
"""
NAMESPACE = ["unshare", "--map-root-user", "--net"]


def has_namespaces() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def tuner(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the command line without a network interface where that is possible, and with a mask that hides nothing."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"},
        "HOME": str(home / "user"),
        "TUNER_CACHE": str(home / "cache"),
        "TMPDIR": str(home / "tmp"),
        "PYTHONPATH": str(home / "site"),
    }
    command = [*(NAMESPACE if has_namespaces() else ()), sys.executable, "-m", "tuner", *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False, umask=0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a task on pictures, one trial of which runs on ONNX Runtime."""
    folder = tmp_path_factory.mktemp("home")
    write_all(folder)
    for name in ("site", "tmp", "user"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE.format(log=str(folder / "sockets.log")))
    done = tuner(folder, "run", "task.toml", "--space", "space.toml", "--out", "run", "--trials", "3", "--time", "10m")
    assert done.returncode == 0, done.stderr
    return folder


def made(home: Path) -> Iterator[Path]:
    """Yield all that a run has made."""
    for name in ("cache", "run", "tmp", "user"):
        yield from (path for path in (home / name).rglob("*"))


def stored_features(home: Path) -> list[bytes]:
    """Return the bytes of each record that cannot be anywhere by chance; the store is not in use afterwards."""
    store, features = Store(home / "cache" / "store"), list[bytes]()
    for stored in store.list():
        assert stored.key is not None
        with store.file(stored.key) as file:
            features += [row.tobytes() for row in file.read(file.sample_ids()) if len(set(row.tolist())) > 8]
    return features


def test_no_process_of_a_run_makes_a_socket_of_the_internet(home: Path) -> None:
    lines = (home / "sockets.log").read_text().splitlines()
    assert lines.count("watched") >= 2  # the main process, and the one that trials are forked from
    assert set(lines) == {"watched", "recorded"}  # and nothing is imported late: it may take the rest of the time


@pytest.mark.skipif(not has_namespaces(), reason="network namespaces are not allowed here")
def test_a_run_needs_no_network_interface(home: Path) -> None:
    devices = subprocess.run([*NAMESPACE, "cat", "/proc/self/net/dev"], capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in devices.stdout.splitlines()[2:]] == ["lo"]
    assert json.loads((home / "run" / "run.json").read_text())["ended"] == "3 trials are done"


def test_no_library_keeps_files_of_its_own(home: Path) -> None:
    """ONNX Runtime's telemetry writes an identifier and a queue of what is to be sent, before it sends anything."""
    assert list((home / "cache" / "store" / "kinds").iterdir()), "no engine was measured against another"
    assert not [path for name in ("tmp", "user") for path in (home / name).rglob("*") if not path.is_dir()]


def test_folders_and_files_are_the_users_own_whatever_the_mask(home: Path) -> None:
    done = tuner(home, "export", "run", "bundle", "--trainable")
    assert done.returncode == 0, done.stderr
    places = [home / "cache", home / "run", home / "bundle", *made(home), *(home / "bundle").rglob("*")]
    assert len(places) > 15
    assert not [str(place) for place in places if place.stat().st_mode & 0o077]


def test_nothing_of_a_forgotten_sample_is_anywhere(home: Path) -> None:
    task = open_task(str(home / "task.toml"), {})
    pixels = [np.asarray(Image.open(path)) for path in sorted((home / "local").rglob("*.png"))]
    photos = [path.read_bytes() for path in (home / "local").rglob("*.png")]
    decoded = [array.tobytes() for array in pixels] + [task.local.train.load(0).tobytes()]
    features = stored_features(home)
    assert len(features) > 20

    def found(contents: list[bytes]) -> int:
        written = [path.read_bytes() for path in made(home) if path.is_file()]
        return sum(any(content in file for file in written) for content in contents)

    assert found(photos + decoded) == 0
    assert found(features) == len(features)
    done = tuner(home, "forget", "task.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] >= len(features)
    assert found(features) == 0
