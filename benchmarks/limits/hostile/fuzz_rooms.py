"""The kinds of files that people write or copy, each with real ones to start from, and what reads it."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.lib.places import FIXTURES, ROOT
from tuner.bundle.format import FILE, PLAN, file_hash
from tuner.bundle.rounds import device_folder
from tuner.cli.text.bundles import format_bundle
from tuner.cli.text.run import print_run
from tuner.commands.runs.show import as_json
from tuner.plan.text import describe
from tuner.results.folder import open_records, read_run
from tuner.results.prior.file import read_prior
from tuner.results.records.config import RunRequest
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial
from tuner.runtime import Bundle, Personaliser, Trainer
from tuner.search.budget import budget
from tuner.search.space import load_space
from tuner.task import InputSpec, cut_windows, open_task, read_npy
from tuner_priors.portfolio import portfolio
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


@dataclass(frozen=True, slots=True)
class Room:
    """One kind of file.

    Attributes:
        name: Name of the kind.
        seeds: Folders or files that a change starts from.
        changed: Path in the folder of the file that is changed; empty where the seed is the file.
        read: Reads what was changed; given the folder's or the file's path.
    """

    name: str
    seeds: tuple[Path, ...]
    changed: str
    read: Callable[[Path], object]


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

    return (
        Room("task", (folder / "task.toml",), "", lambda path: open_task(str(path)).fingerprint()),
        Room("space", tuple(sorted((ROOT / "search_spaces").glob("*.toml"))), "", read_space),
        Room("plan", tuple(bundle / "plan.toml" for bundle in bundles), "", read_plan),
        Room("prior", (folder / "prior.toml",), "", read_prior),
        Room("bundle.json", bundles, "bundle.json", read_bundle),
        Room("model", bundles[:1], "model.onnx", read_sealed),
        Room("step", bundles[:1], "train/step.onnx", read_trainer),
        Room("tail", bundles[:1], "train/tail.onnx", read_trainer),
        Room("replay", bundles[:1], "train/replay.safetensors", read_trainer),
        Room("weights", bundles[:1], "weights.safetensors", read_trainer),
        Room("trainer's plan", bundles[:1], "plan.toml", read_trainer),
        Room("state", (served,), "device/state.json", read_status),
        Room("rounds", (served,), "device/current", read_status),
        Room("run", (*runs, migrated), "run.json", read_run_folder),
        Room("records", (migrated,), "trials.jsonl", read_run_folder),
        Room("journal", runs, "journal.log", read_run_folder),
        Room("recording", tuple(sorted((FIXTURES / "inputs").glob("tone*.npy"))), "", windows),
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


def read_sealed(folder: Path) -> None:
    """Predict with a model whose hash is right."""
    seal(folder, folder / "bundle.json", "model.onnx")
    read_bundle(folder)


def read_trainer(folder: Path) -> None:
    """Train with files whose hashes are right."""
    seal(folder, folder / "bundle.json", *json.loads((folder / "bundle.json").read_text())["files"])
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


def serve(bundle: Path) -> None:
    """Leave what a service leaves in a bundle."""
    (device_folder(bundle) / "current").write_text("0000\n3\n")
    state = ServiceState(
        answers=3, left=(1, 2), losses=(0.5,), tests={"doubt": PageHinkley().after(0.3)},
        rounds=(Round(1e9, 60, "new samples", accepted=True, reason="better"),),
        problems=(Problem(1e9, "the disk was full"),),
    )  # fmt: skip
    write_state(bundle, state)
