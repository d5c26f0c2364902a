"""The index of the cookbook's methods, for `tuner plugins search`: what each adds, and its row of the table."""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods.methods import METHODS
from benchmarks.methods.table import Cells, gain
from tuner.plugin.core import build_host
from tuner_gallery.index import SCHEMA, Entry, Measured
from tuner_gallery.search import added_by

INDEX = Path(__file__).parents[2] / "plugins" / "tuner_gallery" / "cookbook.json"
LICENSE = "Apache-2.0"


def index(cells: Cells, tasks: Sequence[str]) -> str:
    """Return the content of the file."""
    host, entries = build_host(local=[method.file for method in METHODS if method.file is not None]), []
    for method in METHODS:
        if method.file is None:
            continue
        about = ast.parse(method.file.read_text(encoding="utf-8"))
        place = f"docs/cookbook/{method.file.name}"
        measured = tuple(row for task in tasks if (row := _row(cells, method.name, task)) is not None)
        summary = (ast.get_docstring(about) or "").partition("\n\n")[0]
        adds = added_by(host, method.file.stem)
        install = f"tuner run TASK --plugin {place}"
        entries.append(Entry(method.name, adds, " ".join(summary.split()), LICENSE, install, place, measured))
    lines = ",\n  ".join(json.dumps(_plain(asdict(entry))) for entry in entries)
    return f'{{"schema": "{SCHEMA}", "plugins": [\n  {lines}\n]}}\n'


def _row(cells: Cells, name: str, task: str) -> Measured | None:
    own = [values for (of, _), values in cells.get(name, {}).items() if of == task]
    if not own:
        return None
    local, known = (_mean(own, f"{domain}_accuracy") for domain in ("local", "global"))
    points = gain(cells, name, [task])
    return Measured(task, local or 0.0, known, None if points is None else round(points[0], 2), len(own))


def _mean(values: Sequence[Mapping[str, float]], name: str) -> float | None:
    return round(float(np.mean([one[name] for one in values])), 4) if name in values[0] else None


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without what is not known."""
    rows = [{name: value for name, value in row.items() if value is not None} for row in entry["measured"]]
    return {**entry, "measured": rows}
