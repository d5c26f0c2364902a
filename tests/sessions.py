"""Sessions of a backend in this process, with all that installed plugins add; and a task for them."""

import os
import sys
from dataclasses import replace
from functools import cache

from tuner.backends.base import Backend, Session
from tuner.backends.extensions import Extensions
from tuner.distribution import SWITCH
from tuner.plugin.core import build_host
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.spec import Pretrain


def opened(backend: Backend, task: Task) -> Session:
    """Open a task anew: a session trains one plan at most."""
    return backend.open(task, _added(backend.name, os.environ.get(SWITCH, ""), *sys.path))


@cache
def _added(backend: str, _switch: str, *_path: str) -> Extensions:
    """Return what plugins add to a backend: to load them again for each session takes as long as to open it."""
    return build_host().extensions(backend)


def barely_pretrained() -> Task:
    """Return the digits with a model that was pretrained for one epoch: where it need not know much."""
    task = digits()
    return replace(task, model=replace(task.model, pretrain=Pretrain(epochs=1, learning_rate=3e-3)))
