"""Options that the command line does not give: from the environment, then from ``pyproject.toml``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError, nearest

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

FILE = "pyproject.toml"
MOST_BYTES = 2**20
#: Options that a file in the current folder may set: limits, numbers, and a folder to write to. None of them names code
#: that is run (a task, a plugin, a search space, which may name plugins) or data that are believed (a store, a run).
FROM_FILE = frozenset(
    {
        *("time", "train-time", "memory", "storage", "trials", "forget-at-most", "stop-when-flat"),
        *("keep-going", "backend", "seed", "deterministic", "folds", "out", "pick", "enough", "exploration", "window"),
        *("round-time", "keep"),
    }
)


def from_environment(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Set the options of a command that variables name: ``TUNER_RUN_MEMORY=1G`` is ``tuner run --memory 1G``."""
    from cyclopts.config import Env  # not needed for --help

    Env("TUNER_", show=False)(app, commands, arguments)


def from_project(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Set the options of a command that ``[tool.tuner.COMMAND]`` of the current folder's pyproject.toml names."""
    from cyclopts.config import Dict

    path = Path(FILE)
    if not path.exists():
        return
    settings = _settings(path, commands)
    taken = (name for argument in arguments if argument.parse for name in argument.names)
    names = {name.lstrip("-") for name in taken if name.startswith("--")}
    for name in (key for key, value in settings.items() if not isinstance(value, dict)):
        place = f"{FILE}: [tool.tuner.{'.'.join(commands)}] {name}"
        if name not in names:
            raise TunerError(f"{place}: there is no such option{nearest(name, sorted(names & FROM_FILE))}: remove it")
        if name not in FROM_FILE:
            raise TunerError(f"{place}: a file may set limits, not what is run or believed: give --{name} instead")
    chosen = {name: value for name, value in settings.items() if name in FROM_FILE}
    Dict(chosen, use_commands_as_keys=False, source=FILE)(app, commands, arguments)


def _settings(path: Path, commands: tuple[str, ...]) -> dict[str, Any]:
    """Return the table of a command; an empty one where the file has none."""
    from tuner.reading import parse_toml, read_bytes

    try:
        content = read_bytes(path, MOST_BYTES)
        if b"tuner" not in content:
            return {}
        table: Any = parse_toml(content.decode())
    except (OSError, ValueError) as error:
        raise TunerError(f"{path} cannot be read ({error}): correct it, or go to another folder") from None
    for key in ("tool", "tuner", *commands):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise TunerError(f"{path}: {key} of [tool.tuner] must be a table: write [tool.tuner.{'.'.join(commands)}]")
    return dict(table)
