"""A backend that was written before an argument of `Session.export` came is called without it."""

from pathlib import Path

from tests.plan.plans import PLAN
from tests.search.misbehaving import MisbehavingSession
from tuner.backends.base import Exported, silent
from tuner.plan.trial import TrialPlan
from tuner.search.processes.child import _result
from tuner.search.processes.messages import Job
from tuner.store.store import Store
from tuner.task import Task


class Earlier(MisbehavingSession):
    def export(  # type: ignore[override]
        self,
        plan: TrialPlan,
        weights: Path,
        folder: Path,
        *,
        trainable: bool,
        store: Store | None = None,  # noqa: ARG002
    ) -> Exported:
        return super().export(plan, weights, folder, trainable=trainable)


class Later(MisbehavingSession):
    def export(  # type: ignore[override]
        self, plan: TrialPlan, weights: Path, folder: Path, *, trainable: bool, test: bool, report: object
    ) -> Exported:
        assert (test, report) == (False, silent)
        return super().export(plan, weights, folder, trainable=trainable)


def test_an_export_is_called_with_what_it_takes(task: Task, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"weights")
    arguments = {"plan": PLAN, "weights": weights, "folder": tmp_path, "trainable": False, "test": False}
    for kind in (Earlier, Later, MisbehavingSession):
        done = _result(Job("misbehaving", "export", arguments, reports=True), kind(task), silent)
        assert done.checks == {"local_accuracy": 0.5}
    assert Earlier(task).judge(PLAN, weights).checks == {"local_accuracy": 0.5}
