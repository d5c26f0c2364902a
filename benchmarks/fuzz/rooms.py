"""The kinds of files that people write or copy, each with real ones to start from, and what reads it."""

import io
import json
import re
import shutil
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import numpy as np
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import create_trial
from rich.console import Console

from benchmarks.lib.places import FIXTURES, ROOT
from tuner.bundle.format import FILE, PLAN, file_hash
from tuner.bundle.rounds import device_folder
from tuner.cli.text.bundles import format_bundle
from tuner.cli.text.run import print_run
from tuner.commands.runs.show import as_json
from tuner.ort.session import MOST_FIXED_BYTES
from tuner.plan.text import describe
from tuner.results.folder import open_records, read_records, read_run
from tuner.results.prior.file import read_prior
from tuner.results.records.config import RunRequest
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial
from tuner.runtime import Bundle, Personaliser, Trainer
from tuner.search.budget import budget
from tuner.search.space import load_space
from tuner.task import InputSpec, cut_windows, open_task, read_npy
from tuner_fleet.address import read_address
from tuner_fleet.opener import Fleet
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.content import RECORD, WORKERS, make_study
from tuner_priors.portfolio import portfolio
from tuner_serve.server import PageServer
from tuner_watch.commands import format_status
from tuner_watch.drift import PageHinkley
from tuner_watch.state import Problem, Round, ServiceState, write_state
from tuner_watch.watch import status

TASK = """
[model]
factory = "tuner.models.digits:build"
arguments = { outputs = 2 }
[local]
kind = "arrays"
train = "local.npz"
val = "local.npz"
[global]
kind = "arrays"
train = "global.npz"
val = "global.npz"
[input]
mean = [0.5]
std = [0.5]
"""

#: A step of training has a whole batch.
TRAINED_BYTES = MOST_FIXED_BYTES
#: What browsers ask `tuner serve`.
REQUESTS = tuple(
    f"{line} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()
    for line, more in (
        ("GET /web/", ""), ("GET /bundle.json", "Accept: */*\r\n"), ("HEAD /model.onnx", "Range: bytes=0-9\r\n"),
        ("GET /web/x.js?v=1", "Service-Worker: script\r\n"), ("POST /", "Content-Length: 3\r\n\r\nabc"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Room:
    """One kind of file.

    Attributes:
        name: Name of the kind.
        seeds: Folders or files that a change starts from.
        changed: Path in the folder of the file that is changed; empty where the seed is the file.
        read: Reads what was changed; given the folder's or the file's path.
        commands: Commands that are given the same; ``{}`` is the path.
        most_bytes: Memory that reading it may take.
        seal: Makes what was changed look as its maker would have: right hashes.
    """

    name: str
    seeds: tuple[Path, ...]
    changed: str
    read: Callable[[Path], object]
    commands: tuple[tuple[str, ...], ...] = ()
    most_bytes: int = 10**9
    seal: Callable[[Path], object] = lambda path: path


def rooms(folder: Path) -> tuple[Room, ...]:
    """Return every kind of file, with seeds written into a folder where there are none."""
    rng = np.random.default_rng(0)
    for name in ("local", "global"):
        x_train, x_val = rng.random((2, 4, 1, 8, 8), np.float32)
        y = np.array([0, 1, 0, 1])
        np.savez(folder / f"{name}.npz", x_train=x_train, x_val=x_val, y_train=y, y_val=y)
    (folder / "task.toml").write_text(TASK)
    (folder / "prior.toml").write_text("[[plan]]\n[plan.knobs]\n'recipe.epochs' = 3\n'freeze.trainable_blocks' = 1\n")
    runs = tuple(FIXTURES / name / "run" for name in ("digits", "exits", "signals"))
    bundles = tuple(FIXTURES / name / "bundle" for name in ("digits", "exits"))
    served = folder / "served"
    shutil.copytree(bundles[1], served)
    serve(served)
    migrated = folder / "migrated"
    shutil.copytree(runs[0], migrated)
    open_records(migrated, read_run(migrated).template)  # it is old, and has no file of them

    def windows(path: Path) -> object:
        return cut_windows(read_npy(path), InputSpec("signals", window=100, hop=50), "recording")

    study = folder / "study.db"
    share(study, runs[0])
    requests = tuple(folder / f"{number}.request" for number in range(len(REQUESTS)))
    for path, content in zip(requests, REQUESTS, strict=True):
        path.write_bytes(content)
    samples = str(FIXTURES / "inputs")
    digit = str(min((FIXTURES / "inputs").glob("digit*.npy")))
    shown = (("show", "{}"), ("show", "{}", "--json"), ("predict", "{}", digit))
    watched = (("predict", "{}", digit), ("watch", "{}", "--samples", samples, "--once"), ("bundle", "check", "{}"))
    served_by = (("status", "{}"), ("status", "{}", "--json"), ("rollback", "{}"), ("predict", "{}", digit))
    looked_at = (("show", "{}"), ("show", "{}", "--trials"), ("show", "{}", "--json"), ("show", "{}", "0"))
    database = tuple(tuple(word.replace("{}", "sqlite:///{}") for word in words) for words in looked_at)
    return (
        Room("task", (folder / "task.toml",), "", lambda path: open_task(str(path)).fingerprint()),
        Room("space", tuple(sorted((ROOT / "search_spaces").glob("*.toml"))), "", read_space),
        Room("plan", tuple(bundle / "plan.toml" for bundle in bundles), "", read_plan),
        Room("prior", (folder / "prior.toml",), "", read_prior, (("prior", "show", "{}"),)),
        Room("bundle.json", bundles, "bundle.json", read_bundle, shown),
        Room("model", bundles[:1], "model.onnx", read_bundle, shown, seal=seal_all),
        Room("segment", bundles[1:], "segments/0.onnx", read_bundle, shown, seal=seal_all),
        Room("step", bundles[:1], "train/step.onnx", read_trainer, watched, TRAINED_BYTES, seal_all),
        Room("tail", bundles[:1], "train/tail.onnx", read_trainer, watched, TRAINED_BYTES, seal_all),
        Room("replay", bundles[:1], "train/replay.safetensors", read_trainer, watched, TRAINED_BYTES, seal_all),
        Room("weights", bundles[:1], "weights.safetensors", read_trainer, watched, TRAINED_BYTES, seal_all),
        Room("trainer's plan", bundles[:1], "plan.toml", read_trainer, watched, TRAINED_BYTES, seal_all),
        Room("state", (served,), "device/state.json", read_status, served_by),
        Room("rounds", (served,), "device/current", read_status, served_by),
        Room("run", (*runs, migrated), "run.json", read_run_folder, looked_at),
        Room("records", (migrated,), "trials.jsonl", read_run_folder, looked_at),
        Room("journal", runs, "journal.log", read_run_folder, looked_at),
        Room("recording", tuple(sorted((FIXTURES / "inputs").glob("tone*.npy"))), "", windows),
        Room("study", (study,), "", read_study, database),
        Room("request", requests, "", Requests(folder / "site")),
    )


def read_space(path: Path) -> None:
    """Read a search space and its limits."""
    space = load_space(str(path))
    budget(RunRequest(), space.limits)


def read_plan(path: Path) -> None:
    """Read a plan, and say what it does."""
    folder = path.parent / "bundle"
    shutil.copytree(FIXTURES / "digits" / "bundle", folder)
    shutil.move(path, folder / PLAN)
    seal(folder, folder / FILE, PLAN)
    describe(Bundle.open(folder).plan())


def read_bundle(folder: Path) -> None:
    """Open a bundle, predict, and print what it says of itself."""
    model = Personaliser(folder, 1)
    model.predict_file(min((FIXTURES / "inputs").glob("digit*.npy")))
    format_bundle(folder, model.bundle.info, {"local_accuracy": 30})
    json.dumps(model.bundle.info.to_dict())


def read_trainer(folder: Path) -> None:
    """Train with the files of a bundle."""
    bundle = Bundle.open(folder)
    if bundle.plan().recipe.epochs > 100:
        return
    trainer = Trainer(bundle, 1)
    samples = np.random.default_rng(0).random((12, 1, 8, 8), np.float32)
    trainer.add(list(samples), [bundle.labels[at % len(bundle.labels)] for at in range(12)])
    trainer.train(1)


def read_status(folder: Path) -> None:
    """Show a bundle in service, and open its round in use."""
    format_status(status(folder))
    Bundle.open(folder)


def read_run_folder(folder: Path) -> None:
    """Show a run as text and as JSON, pick of it, and make a prior of it."""
    run = Run.open(folder)
    print_run(run, Console(file=io.StringIO(), markup=False), whole=True, details=True)
    json.dumps(as_json(run))
    portfolio([run])
    pick_trial(run, "max(local_accuracy)")


def seal(folder: Path, path: Path, *names: str) -> None:
    """Give files of a bundle the hashes of what they are now."""
    content = json.loads(path.read_text())
    content["files"] |= {name: file_hash(folder / name) for name in names}
    path.write_text(json.dumps(content))


def seal_all(folder: Path) -> None:
    """Give all files of a bundle the hashes of what they are now."""
    seal(folder, folder / FILE, *json.loads((folder / FILE).read_text())["files"])


def share(path: Path, run: Path) -> None:
    """Write a run's trials as a study that workers share, with one that runs."""
    address, info = read_address(f"sqlite:///{path}"), read_run(run)
    with opened(address) as storage:
        trials, _ = make_study(storage, address, info.objectives, info)
        trials.study.set_user_attr(f"{WORKERS}one", asdict(info.spent))
        ranges = {"freeze.trainable_blocks": IntDistribution(1, 3), "recipe.learning_rate": FloatDistribution(0.0, 1.0)}
        knobs = {"freeze.trainable_blocks": 2, "recipe.learning_rate": 0.5}
        for record in read_records(run, info.template):
            values = [record.values.get(one.name, 0.0) for one in info.objectives]
            trials.study.add_trial(
                create_trial(
                    values=values, params=knobs, distributions=ranges, user_attrs={RECORD: record.to_dict()},
                    system_attrs={"constraint:memory": -1.0},
                )
            )  # fmt: skip
        trials.study.ask()


def read_study(path: Path) -> None:
    """Show a shared study, and make a prior of it."""
    address, folder = read_address(f"sqlite:///{path}"), path.parent / "copy"
    folder.mkdir()
    with Fleet().read(address.url) as reader:
        reader.finished()
        reader.write(folder)
    read_run_folder(folder)


class Requests:
    """Sends requests to `tuner serve`, in this process.

    Args:
        folder: Where the bundle that is served is written to.
    """

    def __init__(self, folder: Path) -> None:
        shutil.copytree(FIXTURES / "digits" / "bundle", folder)
        content = json.loads((folder / FILE).read_text())
        (folder / FILE).write_text(json.dumps({**content, "input": {"kind": "images", "size": 8}}))
        page = {"index.html": folder / FILE}  # the page itself is none that a checkout has
        with patch("tuner_serve.server._page", lambda _: page):
            self._server = PageServer(folder, 0)
        self._server.server_close()  # what it answers comes by pairs of sockets

    def __call__(self, path: Path) -> None:
        """Send a file's bytes, and check that what comes back is HTTP and no answer that a server regrets.

        Raises:
            ValueError: It is not.
        """
        here, there = socket.socketpair()
        with here, there, ThreadPoolExecutor(1) as readers:
            got = readers.submit(_all_of, here)
            Thread(target=_sent, args=(here, path.read_bytes()), daemon=True).start()
            try:
                self._server.finish_request(there, ("127.0.0.1", 1))
            except OSError:  # as the server itself bears them: a browser that goes away
                pass
            finally:
                there.close()
            answer = got.result()
        status = re.match(rb"HTTP/1\.[01] ([1-4][0-9]{2}|501|505) |(?:<!DOCTYPE|$)", answer)  # HTTP 0.9 has no status
        if status is None or any(secret in answer for secret in (b"root:x:", b"Traceback")):
            raise ValueError(f"answer {answer[:60]!r}")


def _all_of(connection: socket.socket) -> bytes:
    content = b""
    with suppress(OSError):
        while piece := connection.recv(2**16):
            content += piece
    return content


def _sent(connection: socket.socket, content: bytes) -> None:
    with suppress(OSError):
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)


def serve(bundle: Path) -> None:
    """Leave what a service leaves in a bundle."""
    (device_folder(bundle) / "current").write_text("0000\n3\n")
    state = ServiceState(
        answers=3, left=(1, 2), losses=(0.5,), tests={"doubt": PageHinkley().after(0.3)},
        rounds=(Round(1e9, 60, "new samples", accepted=True, reason="better"),),
        problems=(Problem(1e9, "the disk was full"),),
    )  # fmt: skip
    write_state(bundle, state)
