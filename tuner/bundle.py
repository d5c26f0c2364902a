"""What leaves: a trial of a run, written as a bundle."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BundleError, RunError
from tuner.host import Host
from tuner.plan import TrialPlan
from tuner.results.picking import picked
from tuner.runtime.bundle import FILE, FORMAT, PLAN, WEIGHTS, Bundle, file_hash
from tuner.search.config import write_private
from tuner.search.supervisor import Supervisor
from tuner.task import Task, load_task

if TYPE_CHECKING:
    from tuner.run import Run


def export_bundle(run: "Run", out: Path, pick: str = "knee") -> Path:
    """Write a trial of the front as a bundle; nothing is trained.

    Args:
        run: Finished or interrupted.
        out: A folder that does not exist yet, or is empty.
        pick: ``knee``, a trial's number, or an expression such as ``global_accuracy >= 0.5 and min(train_seconds)``.

    Raises:
        TunerError: There is nothing to export, the task has changed, or the check failed.
    """
    record = picked(run, pick)
    weights = run.folder / "trials" / str(record.trial) / WEIGHTS
    if record.plan is None or not weights.is_file():
        front = ", ".join(map(str, run.front)) or "none"
        raise RunError(f"trial {record.trial} has no weights: they are kept for the front's only ({front})")
    source = str(run.info["config"]["task"])
    if source.startswith("<"):
        raise RunError(
            f"{run.folder} was made from a task given in Python: use Run.export with the task's file instead"
        )
    task = load_task(source, Host().tasks)
    if task.fingerprint() != run.info["identity"]["task"]:
        raise RunError(f"the task {source} has changed since {run.folder} was made: run it again")
    scores = {"trial": record.values, "untouched": dict(run.info["untouched"])}
    extra = {"run": {"trial": record.trial, "seed": run.info["config"]["seed"]}, "scores": scores, "parent": None}
    return write_bundle(source, task, record.plan, weights, out, extra)


def write_bundle(
    source: str | Task, task: Task, plan: TrialPlan, weights: Path, out: Path, extra: Mapping[str, Any]
) -> Path:
    """Export with the plan's backend, check, and put the folder in place whole.

    Raises:
        BundleError: The folder exists already, or the check failed.
    """
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty: give another folder")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    part.mkdir(mode=0o700, parents=True)
    backend = Host().backend(plan.runtime.backend)
    try:
        with Supervisor(backend.preload, source) as supervisor:
            arguments = {"plan": plan, "weights": weights, "folder": part}
            checked = supervisor.call(backend.name, "export", arguments)
        exits = checked.pop("exits", None)
        write_private(part / PLAN, plan.to_toml())
        content = {
            "format": FORMAT,
            "name": task.name,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "tuner": version("tuner"),
            "labels": task.labels,
            "input": asdict(task.input),
            "input_shape": task.input_shape,
            "loss": task.loss,
            "sentence": plan.say(),
            **extra,
            "scores": {**extra.get("scores", {}), "from_pixels": checked},
            **({} if exits is None else {"exits": exits}),
            "files": {path.relative_to(part).as_posix(): file_hash(path) for path in _files(part)},
        }
        write_private(part / FILE, json.dumps(content, indent=1))
        for path in _files(part):
            path.chmod(0o600)
        if out.exists():
            out.rmdir()
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    Bundle.open(out)
    return out


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
