"""The contract of a backend: it opens a task, and the session measures, fills the store, trains plans and exports.

A backend's own module loads no tensor library when imported: `Backend.open` and the session's methods run in a child.
"""

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from tuner.backends.extensions import Extensions
from tuner.errors import UnsupportedError
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import InputDefaults, ModelSpec, Task
from tuner.training.epochs import Report

#: State of a training, next to its weights: of a trial that was cut short, or that may be continued.
CHECKPOINT = "checkpoint.pt"


def silent(progress: Mapping[str, Any]) -> bool:  # noqa: ARG001 - the signature is `Report`'s
    """Report to nobody, and never stop."""
    return False


@dataclass(frozen=True, slots=True)
class Filling:
    """The result of a filling pass.

    Attributes:
        records: Samples that went through the prefix.
        seconds: Wall time.
        seconds_per_sample: By cut: decoding plus the prefix up to there.
        peak_bytes: High-water mark above the resting process.
        folders: By cut and width of its records: the files that now hold all of them, training and validation. Those
            of a plan without room are left out.
        stopped: Whether it was asked to stop before the end.
    """

    records: int
    seconds: float
    seconds_per_sample: dict[int, float]
    peak_bytes: int
    folders: Mapping[tuple[int, int], tuple[Path, ...]]
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan to carry out.

    Attributes:
        plan: What to train.
        seed: Seed of everything that is drawn at random.
        store: Stored features.
        weights: Where to write the trained tail.
        report: Called with progress.
        objectives: Names of values for which plugins' measures are taken.
        earlier: Checkpoint of a trial whose training this one continues.
        keeps: Whether it leaves a checkpoint, from which its training can be continued.
    """

    plan: TrialPlan
    seed: int
    store: Store
    weights: Path
    report: Report = silent
    objectives: tuple[str, ...] = ()
    earlier: Path | None = None
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        checks: What the check of the written files measured, by name.
        sections: Further sections of ``bundle.json``: exits, training, final widths.
    """

    checks: Mapping[str, float]
    sections: Mapping[str, Any] = field(default_factory=dict)


class Session(ABC):
    """A task opened on a backend. Children forked from its process inherit it; a process trains one plan at most."""

    @property
    @abstractmethod
    def model(self) -> ModelInfo:
        """The model's chain of blocks."""

    def sized(self, sizes: Sequence[int]) -> ModelInfo:  # noqa: ARG002 - optional
        """Return the model with what it is at further sizes of its input, in pixels; without any by default."""
        return self.model

    def prepare(self, plan: TrialPlan) -> None:  # noqa: B027 - optional
        """Compute and keep what every job about a plan's cuts needs: called before a child is forked for the plan."""

    @abstractmethod
    def measure(
        self,
        threads: int,
        within: float = math.inf,
        known: Mapping[str, float] = MappingProxyType({}),
        report: Report = silent,
        plan: TrialPlan | None = None,
    ) -> Rates:
        """Return this device's speed on this model.

        Args:
            threads: Threads of the model.
            within: Seconds that it should take at most; what there is no time for is derived.
            known: Figures that earlier calls reported, which are not measured again: `tuner.planner.device.rates_from`.
            report: Called with each new figure, ``{"figure": name, "value": number}``, which is then kept.
            plan: A plan of another size of the input, one of those that `sized` returned: the model is the one at it.
        """

    def first_steps(self, threads: int, within: float = math.inf) -> FirstSteps:  # noqa: ARG002 - optional
        """Return what the first training step takes in a process that ran none before; empty where that is not known.

        After the seconds it may be ended from outside.
        """
        return FirstSteps()

    def plan_step(self, plan: TrialPlan) -> StepPlan | None:  # noqa: ARG002 - optional
        """Return a plan's training step as it would run here, planned to the byte; None where none is planned."""
        return None

    @abstractmethod
    def untouched(
        self, store: Store, threads: int, report: Report = silent, share: float = 1.0, folds: int = 0
    ) -> Outcome:
        """Return the given model's own accuracies, global rows only, and its predictions by class.

        Args:
            store: Features, which are read where all that are needed are there.
            threads: Threads of the model.
            report: Called with progress.
            share: Share of the validation samples, as in `DataPlan.share`.
            folds: Number of folds that judge plans: if not 0, the local training samples are scored too.
        """

    def baselines(
        self,
        store: Store,  # noqa: ARG002 - optional
        threads: int,  # noqa: ARG002 - likewise
        share: float = 1.0,  # noqa: ARG002 - likewise
        folds: int = 0,  # noqa: ARG002 - likewise
        within: float = math.inf,  # noqa: ARG002 - likewise
    ) -> tuple[Baseline, ...]:
        """Return what anybody would try first, fitted on the local training samples and scored; none by default.

        Args:
            store: Features, which are read as far as they are there.
            threads: Threads that features are computed with.
            share: Share of the training and of the validation samples, as in `DataPlan.share`.
            folds: Number of folds that judge plans: if not 0, the local training samples are scored too.
            within: Seconds after which nothing more is begun.
        """
        return ()

    def ask(self, question: str, **about: Any) -> Any:  # noqa: ARG002 - optional
        """Return what a plugin finds out about the opened task: numbers, texts, lists and tables.

        Args:
            question: Name of an entry point of the group ``tuner.questions``: a function of what this backend opens,
                such as `tuner.backends.torch.trial.opened.OpenTask`.
            about: Its other arguments.

        Raises:
            UnsupportedError: This backend opens nothing that plugins know, or the function refuses the model.
        """
        raise UnsupportedError(f"this backend finds out no {question}: use another one")

    @abstractmethod
    def missing(self, plans: Sequence[TrialPlan], store: Store) -> int:
        """Return how many samples a filling pass for `plans` would run the prefix on."""

    @abstractmethod
    def fill(self, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Run the prefix, of one precision, on every sample that `plans` need and the store lacks, in one pass.

        What the exits of the first plan begin with is learned too; that of the others when they are tried.
        """

    @abstractmethod
    def train(self, trial: Trial) -> Outcome:
        """Carry the plan out and write the trained tail to `trial.weights` before returning.

        Raises:
            UnsupportedError: The tail holds what this backend cannot train: the trial is refused, not failed.
            TunerError: Training diverged, or the plan cannot be carried out for another reason.
        """

    @abstractmethod
    def export(
        self,
        plan: TrialPlan,
        weights: Path,
        folder: Path,
        *,
        trainable: bool,
        store: Store | None = None,
        test: bool = True,
        report: Report = silent,
    ) -> Exported:
        """Write ``model.onnx`` and ``weights.safetensors`` of a trained plan's tail into a folder, and check them.

        What is `trainable` has all that `tuner.runtime.Trainer` needs in ``train/`` as well. Where a tail trains by
        steps, ``replay`` may be given too: the most bytes of features of the user's samples. Measures beyond the check
        read features from a store, if one has them. Without `test` the test samples are not scored. The report counts
        scored samples, as ``{"scored": 32, "of": 1000}``.

        Raises:
            BundleError: The check failed, or the tail's training step cannot be written.
        """

    def judge(self, plan: TrialPlan, weights: Path, store: Store | None = None) -> Exported:
        """Return what an export of a trained plan measures on the local validation samples, and sets on them.

        Its other scores and sections may be missing. By default the plan is exported, and what was written thrown away.
        Features are read from a store, if one has them.
        """
        with tempfile.TemporaryDirectory() as folder:
            asked: dict[str, Any] = {"trainable": False, "store": store, "test": False}
            return export(self, plan=plan, weights=weights, folder=Path(folder), **asked)


def export(session: Session, **asked: Any) -> Exported:
    """Call a session's `export`, without arguments that came later than the backend and that it does not take."""
    taken = signature(session.export).parameters
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in taken.values())
    later = set() if takes_all else {"test", "report", "replay"} - set(taken)
    return session.export(**{name: value for name, value in asked.items() if name not in later})


class Backend(ABC):
    """Carries plans out. One instance serves any number of tasks; it keeps nothing."""

    name: ClassVar[str]
    #: A backend whose tail edits, terms, optimisers and measures it takes too: one that it opens the same tails as.
    lowers_as: ClassVar[str] = ""
    #: Modules worth importing once in the process that children are forked from.
    preload: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def supports(self, plan: TrialPlan) -> str | None:
        """Return why this backend cannot carry the plan out, or None. Loads no tensor library."""

    def input_defaults(self, model: ModelSpec) -> InputDefaults | None:  # noqa: ARG002 - of none by default
        """Return how images are prepared for a published model, by its own configuration; None where nobody says."""
        return None

    @abstractmethod
    def open(self, task: Task, extensions: Extensions) -> Session:
        """Open a task, once, in the process that children are forked from. No thread may be left running.

        Raises:
            TaskError: The model cannot be built, or the weights do not fit it.
        """
