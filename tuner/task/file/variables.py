"""``${VARIABLES}`` in a task file."""

import os
import re
from pathlib import Path
from typing import Any

from tuner.errors import TaskError, nearest

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,4096}))?\}")
DATA_VARIABLE = "TUNER_DATA"


def expand(value: Any, file: Path) -> Any:
    """Replace ``${NAME}`` and ``${NAME:-default}`` in every string of a task file's parsed value.

    Values come from the environment; as in a shell, a default also replaces an empty value.

    Raises:
        TaskError: A variable is not set and has no default.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _lookup(match[1], match[2], file), value)
    if isinstance(value, list):
        return [expand(item, file) for item in value]
    if isinstance(value, dict):
        return {key: expand(item, file) for key, item in value.items()}
    return value


def default_data(folder: Path) -> Path | None:
    """Return the nearest ``shared/data`` next to a folder or one of its parents; None where there is none."""
    for ancestor in (folder, *folder.parents):
        candidate = ancestor.parent / "shared" / "data"
        if candidate.is_dir():
            return candidate
    return None


def _lookup(name: str, default: str | None, file: Path) -> str:
    value = os.environ.get(name)
    if value or (value is not None and default is None):
        return value
    if default is not None:
        return default
    data = default_data(file.parent) if name == DATA_VARIABLE else None
    if data is not None:
        return str(data)
    raise TaskError(
        f"{file}: ${{{name}}} is not set{nearest(name, os.environ)}: export {name}=..., or write ${{{name}:-default}}"
    )
