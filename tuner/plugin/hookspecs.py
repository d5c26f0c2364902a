"""The hooks that a plugin may implement. Few hooks that return typed objects: mypy checks the objects, not the hooks.

A plugin is a module named by an entry point of the group ``tuner``; it marks its functions with `hookimpl`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from tuner.backends.base import Backend
from tuner.backends.batches import BatchFunction
from tuner.backends.extensions import OptimiserFactory
from tuner.backends.losses import LossFunction
from tuner.backends.lowering import Lowering
from tuner.backends.measuring import Measure
from tuner.backends.selecting import Selector
from tuner.plugin.strategy import Strategy
from tuner.plugin.studies import StudyOpener
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import Objective
from tuner.ridge.solver import HeadSolver
from tuner.task import Task
from tuner.task.reader import TaskReader

PROJECT = "tuner"
#: Version of what `tuner.plugin` offers; a plugin may require one as ``TUNER_API`` of its module.
API = 1
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tuner_strategies() -> Iterable[Strategy[Any]]:  # type: ignore[empty-body]  # a specification has no body
    """Return the strategies this plugin offers."""


@hookspec
def tuner_backends() -> Iterable[Backend]:  # type: ignore[empty-body]  # a specification has no body
    """Return the backends this plugin offers; importing them must load no tensor library."""


@hookspec
def tuner_lowerings(backend: str) -> Mapping[str, Lowering]:  # type: ignore[empty-body]  # a specification
    """Return how `backend` realises this plugin's tail edits, by kind.

    The lowerings run in a process that has loaded the tensor library; the hook itself must not load it.
    """


@hookspec
def tuner_solvers() -> Mapping[str, HeadSolver]:  # type: ignore[empty-body]  # a specification has no body
    """Return how this plugin solves heads from sums, by the kind of its tail edit; a device calls it too."""


@hookspec
def tuner_losses(backend: str) -> Mapping[str, LossFunction]:  # type: ignore[empty-body]  # a specification
    """Return how `backend` computes this plugin's terms of the loss, by kind; it must load no tensor library."""


@hookspec
def tuner_optimisers(backend: str) -> Mapping[str, OptimiserFactory]:  # type: ignore[empty-body]  # a specification
    """Return how `backend` makes the optimisers that this plugin adds, by name; it must load no tensor library."""


@hookspec
def tuner_selectors() -> Mapping[str, Selector]:  # type: ignore[empty-body]  # a specification has no body
    """Return how this plugin's data edits choose samples, by kind."""


@hookspec
def tuner_batches(backend: str) -> Mapping[str, BatchFunction]:  # type: ignore[empty-body]  # a specification
    """Return how `backend` applies this plugin's changes of batches, by kind; it must load no tensor library."""


@hookspec
def tuner_measures(backend: str) -> Mapping[str, Measure]:  # type: ignore[empty-body]  # a specification
    """Return how this plugin measures objectives of trials on `backend`, by the objective's name."""


@hookspec
def tuner_objectives() -> Iterable[Objective | Callable[..., float]]:  # type: ignore[empty-body]  # a specification has no body
    """Return the objectives this plugin offers: numbers that are measured, or functions of predictions and labels."""


@hookspec
def tuner_tasks() -> Mapping[str, Callable[[], Task]]:  # type: ignore[empty-body]  # a specification has no body
    """Return built-in tasks by name."""


@hookspec
def tuner_task_files() -> Mapping[str, TaskReader]:  # type: ignore[empty-body]  # a specification has no body
    """Return what reads the task that a file describes, by the ending of the file's name, such as ``.ini``."""


@hookspec
def tuner_studies() -> Mapping[str, StudyOpener]:  # type: ignore[empty-body]  # a specification has no body
    """Return what opens studies that several processes share, by the scheme of their address: ``postgresql``."""


@hookspec
def tuner_trial_done(study: str, record: TrialRecord) -> None:
    """Observe a finished trial of the study in the folder `study`; the study does not depend on it."""
