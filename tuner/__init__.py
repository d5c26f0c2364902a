"""Tune how a model is personalised on a device, within a stated time and memory budget."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.commands.python import export, run
    from tuner.commands.run import Run
    from tuner.plugin.core import load_task
    from tuner.plugin.hookspecs import hookimpl
    from tuner.results.scores.objectives import objective
    from tuner.task import Task

#: From 1.29 on, ONNX Runtime reports its use to its maker, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = ["Run", "Task", "export", "hookimpl", "load_task", "objective", "run"]

_HOMES = {
    "Run": "tuner.commands.run",
    "export": "tuner.commands.python",
    "run": "tuner.commands.python",
    "Task": "tuner.task",
    "load_task": "tuner.plugin.core",
    "hookimpl": "tuner.plugin.hookspecs",
    "objective": "tuner.results.scores.objectives",
}


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: ``import tuner`` alone loads next to nothing."""
    if name == "__version__":
        from tuner.distribution import installed_version

        return installed_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
