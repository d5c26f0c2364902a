"""A prior: plans of earlier runs, as values of knobs, that a study tries first."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import RunError, SpaceError
from tuner.files import cache_folder, write_private
from tuner.plan.info import ModelInfo
from tuner.plan.parts import Scalar
from tuner.reading import read_toml
from tuner.results.run import Run

#: As many plans of one run are tried first.
MOST_PLANS = 6


@dataclass(frozen=True, slots=True)
class Prior:
    """Plans to try first.

    Attributes:
        plans: Values of knobs by name; the best plan first.
        task: Fingerprint of the task that all of them were tried on; empty where there are several.
    """

    plans: tuple[Mapping[str, Scalar], ...] = ()
    task: str = ""


def prior_of(runs: Sequence[Run]) -> Prior:
    """Return the plans of some runs' fronts that are worth a look, the knee of each first, in turns."""
    lists = []
    for run in runs:
        order = sorted(run.shortlist, key=lambda trial, knee=run.knee: (trial != knee, trial))  # type: ignore[misc]  # mypy cannot infer the lambda
        lists.append([run.record(trial).knobs for trial in order[:MOST_PLANS]])
    longest = max(map(len, lists), default=0)
    turns = [one[place] for place in range(longest) for one in lists if place < len(one)]
    plans = {json.dumps(knobs, sort_keys=True): knobs for knobs in turns}
    tasks = {run.info.identity.task for run in runs}
    return Prior(tuple(plans.values()), tasks.pop() if len(tasks) == 1 else "")


def write_prior(path: Path, prior: Prior) -> None:
    """Write a prior as TOML, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    import tomli_w

    write_private(path, tomli_w.dumps({"plan": [{"knobs": dict(plan)} for plan in prior.plans]}))


def read_prior(path: Path) -> Prior:
    """Read a prior.

    Raises:
        SpaceError: The file is no prior that can be read.
    """
    way_out = "`tuner prior build RUN` writes a prior"
    plans = read_toml(path, SpaceError, way_out).get("plan")
    if not isinstance(plans, list) or not all(_is_plan(plan) for plan in plans):
        raise SpaceError(f"{path}: plan must be a list of tables with knobs = {{ name = value }}: {way_out}")
    return Prior(tuple(plan["knobs"] for plan in plans))


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


def _is_plan(value: object) -> bool:
    knobs = value.get("knobs") if isinstance(value, dict) else None
    return isinstance(knobs, dict) and all(isinstance(one, Scalar) for one in knobs.values())
