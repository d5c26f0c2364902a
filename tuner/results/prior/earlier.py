"""Plans of one earlier run, as values of knobs, that a study tries first."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import RunError
from tuner.files import cache_folder, write_private
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar
from tuner.results.run import Run

#: As many plans of one run are tried first.
MOST_PLANS = 6


@dataclass(frozen=True, slots=True)
class Earlier:
    """Plans to try first, as values of knobs, best first, and the fingerprint of the task that they were tried on."""

    plans: tuple[Mapping[str, Scalar], ...] = ()
    task: str = ""


def earlier_plans(run: Run) -> Earlier:
    """Return the plans of a run's front that are worth a look, the best first."""
    order = sorted(run.shortlist, key=lambda trial: (trial != run.best, trial))
    plans = {json.dumps(knobs, sort_keys=True): knobs for knobs in (run.record(trial).knobs for trial in order)}
    return Earlier(tuple(plans.values())[:MOST_PLANS], run.info.identity.task)


def remember_run(model: ModelInfo, task: str, folder: Path) -> None:
    """Keep where the newest run of a task on a model lies, and the newest of any task on a model of these blocks."""
    for path in (_newest(model, task), _newest(model)):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, bytes(folder.absolute()))


def newest_run(model: ModelInfo, task: str | None = None) -> Run | None:
    """Return the newest run of a task on this model; without a task, that of any on a model of these blocks.

    None where there is none that can be read, or nothing is worth a look in it.
    """
    try:
        run = Run.open(os.fsdecode(_newest(model, task).read_bytes()))
    except (OSError, ValueError, RunError):
        return None
    return run if run.shortlist else None


def _newest(model: ModelInfo, task: str | None = None) -> Path:
    """Return the file that names a newest run: by a task's name or file and a model's weights, or by blocks alone."""
    key = repr((model.name, [(block.name, block.in_shape) for block in model.blocks]))
    if task is not None:
        key = repr((model.identity, task))
    return cache_folder() / "runs" / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
