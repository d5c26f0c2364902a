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


def remember_run(model: ModelInfo, folder: Path) -> None:
    """Keep where the newest run of a model's family lies."""
    path = _newest(model)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, bytes(folder.absolute()))


def newest_run(model: ModelInfo) -> Run | None:
    """Return the newest run of a model's family; None where there is none that can be read."""
    try:
        return Run.open(os.fsdecode(_newest(model).read_bytes()))
    except (OSError, ValueError, RunError):
        return None


def _newest(model: ModelInfo) -> Path:
    """Return the file that names the newest run of all models with these blocks, whatever their weights and labels."""
    family = repr((model.name, [(block.name, block.in_shape) for block in model.blocks]))
    return cache_folder() / "runs" / hashlib.blake2b(family.encode(), digest_size=16).hexdigest()
