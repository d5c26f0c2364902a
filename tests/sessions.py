"""Sessions of a backend in this process, with the lowerings of all installed plugins."""

from tuner.backends.base import Backend, Session
from tuner.plugin.core import build_host
from tuner.task import Task


def opened(backend: Backend, task: Task) -> Session:
    """Open a task anew: a session trains one plan at most."""
    return backend.open(task, build_host().lowerings(backend.name))
