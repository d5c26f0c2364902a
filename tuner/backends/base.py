"""The contract of a backend: it describes a model, fills the store, trains a plan and exports the result.

A backend's own module loads no tensor library when imported: the methods that need one run in a child process.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import BundleError
from tuner.plan import ModelInfo, TrialPlan
from tuner.planner.cost import Rates
from tuner.planner.step import StepPlan
from tuner.results.records import Outcome
from tuner.store.store import Store
from tuner.task import Task

#: Realises a tail edit: takes the backend's own tail and the edit's settings, and returns the tail.
Lowering = Callable[[Any, Mapping[str, Any]], Any]
#: Called with progress; returns whether to stop at the next step.
Report = Callable[[Mapping[str, Any]], bool]
#: What a trial that was cut short may go on from, beside its weights; a finished one has none.
CHECKPOINT = "checkpoint.pt"


def silent(progress: Mapping[str, Any]) -> bool:  # noqa: ARG001 - the signature is `Report`'s
    """Report to nobody, and never stop."""
    return False


@dataclass(frozen=True, slots=True)
class Filling:
    """What a filling pass did.

    Attributes:
        records: Samples that went through the prefix.
        seconds: It took.
        seconds_per_sample: By split: decoding plus the prefix up to there.
        peak_bytes: Above the resting process, at most.
        folders: By split and width of its records: the files that now hold all of them, training and validation. Those
            of a plan without room are left out.
        stopped: Whether it was told to stop before the end.
    """

    records: int
    seconds: float
    seconds_per_sample: dict[int, float]
    peak_bytes: int
    folders: Mapping[tuple[int, int], tuple[Path, ...]]
    stopped: bool = False


class Backend(ABC):
    """Carries plans out. One instance serves any number of tasks; nothing is kept between calls but on disk."""

    name: ClassVar[str]
    #: Modules worth importing once in the process that children are forked from.
    preload: ClassVar[Sequence[str]] = ()

    def warm(self, task: Task) -> None:  # noqa: B027 - optional
        """Load what every job on the task needs, once, in the process that their children are forked from.

        It must start no thread, as threads do not survive a fork; what it raises is raised again by the first job.
        """

    @abstractmethod
    def describe(self, task: Task) -> ModelInfo:
        """Return the model's chain of blocks.

        Raises:
            TaskError: The model cannot be built, or the weights do not fit it.
        """

    @abstractmethod
    def measure(self, task: Task, threads: int) -> Rates:
        """Return this device's speed on this model."""

    @abstractmethod
    def supports(self, plan: TrialPlan) -> str | None:
        """Return why this backend cannot carry the plan out, or None. Loads no tensor library."""

    def plan_step(self, task: Task, plan: TrialPlan) -> StepPlan | None:  # noqa: ARG002 - optional
        """Return a plan's training step as it would run here, planned to the byte; None where none is planned."""
        return None

    @abstractmethod
    def untouched(
        self, task: Task, model: ModelInfo, store: Store, threads: int, report: Report = silent
    ) -> dict[str, float]:
        """Return the given model's own accuracies, global rows only."""

    @abstractmethod
    def missing(self, task: Task, plans: Sequence[TrialPlan], store: Store) -> int:
        """Return how many samples a filling pass for `plans` would run the prefix on."""

    @abstractmethod
    def fill(self, task: Task, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Run the prefix on every sample that `plans` need and the store lacks, in one pass for all of their cuts."""

    @abstractmethod
    def train(
        self, task: Task, plan: TrialPlan, seed: int, store: Store, weights: Path, report: Report = silent
    ) -> Outcome:
        """Carry the plan out and write the trained tail to `weights` before returning.

        Raises:
            UnsupportedError: The tail holds what this backend cannot train: the trial is refused, not failed.
            TunerError: Training diverged, or the plan cannot be carried out for another reason.
        """

    @abstractmethod
    def export(self, task: Task, plan: TrialPlan, weights: Path, folder: Path) -> dict[str, Any]:
        """Write ``model.onnx`` and ``weights.safetensors``, check them, and return what the check measured."""

    def export_trainable(self, task: Task, plan: TrialPlan, weights: Path, folder: Path) -> dict[str, Any]:  # noqa: ARG002 - the backend's own
        """Do as `export`, with all that `tuner.runtime.Trainer` needs in ``train/``.

        Returns:
            What the check measured, and under ``train`` what the bundle says of its training.

        Raises:
            BundleError: The tail's training step cannot be written.
        """
        raise BundleError(f"backend {self.name} writes no training step: export without --trainable")
