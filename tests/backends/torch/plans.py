"""Plans for the built-in task, on its own model, what carries them out, and what exported files give away."""

import sys
from pathlib import Path

import torch

import tuner
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info


def plan_of(task: Task, loaded: OpenModel, bits: int = 8, split: int = 2, alpha: float = 0.05) -> TrialPlan:
    return TrialPlan(
        model=loaded.info,
        task=task_info(task),
        data=DataPlan(alpha),
        split=split,
        cache=CachePlan("cache", bits),
        recipe=RecipePlan(epochs=2),
        runtime=RuntimePlan(threads=1),
    )


def carried_out(task: Task, plan: TrialPlan, folder: Path, seed: int = 1) -> Outcome:
    """Fill a store in a folder as a plan needs it, train the plan, and leave the weights next to the store."""
    store = Store(folder / "store")
    if plan.cached:
        assert opened(TorchBackend(), task).fill([plan], store).records > 0
        assert opened(TorchBackend(), task).missing([plan], store) == 0
    return opened(TorchBackend(), task).train(Trial(plan, seed, store, folder / "weights.safetensors"))


def places_in(folder: Path) -> dict[str, set[bytes]]:
    """Return, of files that would give this installation away, what they hold of it."""
    folders = {Path(tuner.__file__).parent, Path(torch.__file__).parent, Path(sys.prefix), Path(__file__).parents[3]}
    places = {b"site-packages", b"stack_trace", *(str(folder).encode() for folder in folders)}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".onnx" for path in files)
    return {path.name: held for path in files if (held := {place for place in places if place in path.read_bytes()})}
