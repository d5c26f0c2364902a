"""What leaves: a trial of a run, written as a bundle."""

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
from tuner.runtime.bundle import FORMAT, PLAN, WEIGHTS, placed, seal
from tuner.search.config import write_private
from tuner.search.supervisor import Supervisor
from tuner.task import Task, load_task

if TYPE_CHECKING:
    from tuner.tune import Run


def export_bundle(run: "Run", out: Path, pick: str = "knee", *, trainable: bool = False) -> Path:
    """Write a trial of the front as a bundle; nothing is trained.

    Args:
        run: Finished or interrupted.
        out: A folder that does not exist yet, or is empty.
        pick: ``knee``, a trial's number, or an expression such as ``global_accuracy >= 0.5 and min(train_seconds)``.
        trainable: Whether `tuner.runtime.Trainer`, or `ExitsTrainer`, shall be able to train it again, without PyTorch.

    Raises:
        TunerError: There is nothing to export, the task has changed, or the check failed.
    """
    record = picked(run, pick)
    weights = run.folder / "trials" / str(record.trial) / WEIGHTS
    if record.plan is None or not weights.is_file():
        front = ", ".join(map(str, run.front)) or "none"
        raise RunError(f"trial {record.trial} has no weights: they are kept for the front's only ({front})")
    named = str(run.info["config"]["task"])
    if run.task is None and named.startswith("<"):
        raise RunError(f"{run.folder} was made from a task given in Python: Run.open({str(run.folder)!r}, task).export")
    task = run.task or load_task(named, Host().tasks)
    if task.fingerprint() != run.info["identity"]["task"]:
        raise RunError(f"the task {named} has changed since {run.folder} was made: run it again")
    scores = {"trial": record.values, "untouched": dict(run.info["untouched"])}
    extra = {"run": {"trial": record.trial, "seed": run.info["config"]["seed"]}, "scores": scores, "parent": None}
    with placed(out) as part:
        said = write_bundle(run.task or named, task, record.plan, weights, part, extra, trainable=trainable)
        if trainable and "train" not in said:
            raise BundleError(
                f"--trainable trains exits, but calibration kept none of trial {record.trial}'s: pick another trial"
            )
    return out


def write_bundle(
    source: str | Task,
    task: Task,
    plan: TrialPlan,
    weights: Path,
    part: Path,
    extra: Mapping[str, Any],
    *,
    trainable: bool = False,
) -> dict[str, Any]:
    """Export with the plan's backend into a folder from `placed`, and check what was written.

    Returns:
        What ``bundle.json`` says.

    Raises:
        BundleError: The check failed.
    """
    backend = Host().backend(plan.runtime.backend)
    with Supervisor(backend.preload, source) as supervisor:
        arguments = {"plan": plan, "weights": weights, "folder": part}
        checked = supervisor.call(backend.name, "export_trainable" if trainable else "export", arguments)
    beside = {name: checked.pop(name) for name in ("final_widths", "train", "exits") if name in checked}
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
        **beside,
        **extra,
        "scores": {**extra.get("scores", {}), "from_pixels": checked},
    }
    seal(part, content)
    return content
