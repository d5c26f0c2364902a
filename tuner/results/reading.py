"""Read a run's folder, without the search."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.results.objectives import Objective
from tuner.results.pareto import front, knee
from tuner.results.records import TrialRecord, eligible
from tuner.search.config import read_run
from tuner.search.folder import JOURNAL

if TYPE_CHECKING:
    from tuner.tune import Run

SET_USER_ATTR = 8  # Optuna's journal: the operation that sets a trial's attribute


def read(folder: Path) -> "Run":
    """Return the run in a folder.

    Raises:
        RunError: The folder is not a run's.
    """
    from pydantic import TypeAdapter

    from tuner.tune import Run, template

    info = read_run(folder)
    base = template(info)
    objectives = tuple(TypeAdapter(Objective).validate_python(one) for one in info["objectives"])
    records = tuple(TrialRecord.from_dict(content, base) for content in _records(folder / JOURNAL))
    members = {record.trial: record.values for record in records if eligible(record)}
    best = tuple(front(members, objectives))
    middle = knee({trial: members[trial] for trial in best}, objectives, info["untouched"])
    return Run(folder, info, objectives, records, best, middle)


def _records(journal: Path) -> Iterator[dict[str, Any]]:
    """Yield the trials' records; a torn last line is left out."""
    found: dict[int, dict[str, Any]] = {}
    if journal.exists():
        for line in journal.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            record = entry.get("user_attr", {}).get("record") if entry.get("op_code") == SET_USER_ATTR else None
            if record is not None:
                found[int(record["trial"])] = record
    yield from (found[trial] for trial in sorted(found))
