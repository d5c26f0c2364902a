"""The backend that candidates are opened on: a local plugin of the process that they are forked from, and no other."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

from tuner.backends.torch.backend import TorchBackend
from tuner.plugin import Backend, Extensions, Session, Task, TrialPlan, hookimpl

#: Name of the backend.
NAME = "candidates"


class Candidates(TorchBackend):
    """Runs candidates for a task's model; it trains nothing."""

    name = NAME
    preload: ClassVar[Sequence[str]] = ("torch", "torch.utils.flop_counter", "tuner_choose.torch.passes")

    def supports(self, plan: TrialPlan) -> str | None:  # noqa: ARG002 - of any plan
        """Return that no plan can be carried out."""
        return "it only compares models"

    def open(self, task: Task, extensions: Extensions) -> Session:  # noqa: ARG002 - nothing trains
        """Keep the task, whose own model is not opened."""
        from tuner_choose.torch.passes import Passes

        return cast("Session", Passes(task))  # its only method is called by name


@hookimpl
def tuner_backends() -> Iterable[Backend]:
    """Offer the backend."""
    return [Candidates()]
