"""A task: one model, what it was trained for, and what one user adds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from tuner.arrays import Floats
from tuner.errors import TaskError
from tuner.plan.parts import RecipePlan
from tuner.targets import SINGLE_LABEL, LossKind, LossSettings, Targets, TargetScale, targets_of
from tuner.task.contents import TaskContents, contents_of, model_contents
from tuner.task.data.samples import Samples
from tuner.task.inputs import input_kind
from tuner.task.spec import InputSpec, LabelMap, ModelSpec, normalise

MOST_NAME_BYTES = 200


@dataclass(frozen=True, slots=True)
class GivenTraining:
    """A training that the task itself asks for: it is tried before the search begins.

    Attributes:
        recipe: How it trains.
        frozen_parameters: Number of learnable values that it leaves alone: those of the first blocks.
    """

    recipe: RecipePlan
    frozen_parameters: int = 0


@dataclass(frozen=True)
class Domain:
    """The partitions of local or of global data.

    Attributes:
        train: Samples to train on.
        val: Samples whose scores guide the search.
        test: Samples that are scored once, at export, if there are any.
    """

    train: Samples
    val: Samples
    test: Samples | None = None

    def partitions(self) -> Iterator[tuple[str, Samples]]:
        """Yield name and samples of the partitions that exist."""
        yield "train", self.train
        yield "val", self.val
        if self.test is not None:
            yield "test", self.test

    def mapped(self, function: Callable[[Samples], Samples]) -> "Domain":
        """Return the domain with a function's result for each partition."""
        return Domain(function(self.train), function(self.val), None if self.test is None else function(self.test))


@dataclass(frozen=True)
class Task:
    """What is personalised.

    Attributes:
        name: Name in reports.
        model: Network and its weights.
        input: How samples become its input.
        loss: Name of what a sample's label is; see `targets`.
        local: User's own data.
        global_: Data of the classes the model was trained for; None for no mixing and no global objective.
        labels: Rows of the union head in order: the global classes, then the new local ones.
        head_rows: Row in the given model's head of each global label, the first `len(head_rows)` of `labels`.
        local_labels: Rows that occur in the local data.
        augment: Random operations that keep a sample's label (`tuner.augment.operations`).
        labelled: Whether the local labels are the user's; else agreement with the given model is the objective.
        skipped: Files that were left out because they cannot be read, each with the reason.
        findings: Lines on the files of entries, such as which kinds are left out.
        notes: Files that were changed in a way that a person should know, each with what was done to it.
        loss_settings: Settings of the loss.
        label_map: Labels of a sample by one name for them all, of the user's or of the task: with those more general.
        scale: What the samples' targets were standardised by; None for labels, and for targets without a unit.
        given: Training that the task asks for, such as a model file's; None where it asks for none.
        cautions: Lines on what is believed of the model and its classes, where the task does not say it.
    """

    name: str
    model: ModelSpec
    input: InputSpec
    loss: LossKind
    local: Domain
    global_: Domain | None
    labels: tuple[str, ...]
    head_rows: tuple[int, ...]
    local_labels: tuple[int, ...]
    augment: tuple[str, ...] = ()
    labelled: bool = True
    skipped: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    loss_settings: LossSettings = SINGLE_LABEL.settings
    label_map: LabelMap = ()
    scale: TargetScale | None = None
    given: GivenTraining | None = None
    cautions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        input_kind(self.input.kind).check(self.input)
        rows = len(self.labels)
        if len(set(self.labels)) != rows:
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise TaskError(f"{self.name}: labels must differ from each other, got {twice!r} twice")
        if len(self.head_rows) > rows or len(set(self.head_rows)) != len(self.head_rows):
            raise TaskError(
                f"{self.name}: head_rows must be different rows for at most {rows} labels, got {list(self.head_rows)}"
            )
        if any(not 0 <= row < rows for row in self.local_labels):
            raise TaskError(f"{self.name}: local_labels must be rows below {rows}, got {list(self.local_labels)}")
        for where, samples in self.partitions():
            labels, count = samples.labels, len(samples)
            if count == 0:
                raise TaskError(f"{self.name}: {where} is empty: a partition must have at least one sample")
            if len(labels) != count:
                raise TaskError(f"{self.name}: {where}: {count} samples need as many labels, got {len(labels)}")
            self.targets.check(labels, rows, f"{self.name}: {where}")

    @property
    def targets(self) -> Targets:
        """What a sample's label is."""
        return targets_of(self.loss, self.loss_settings, self.scale)

    @property
    def own_classes(self) -> tuple[int, ...]:
        """Rows of the classes of the local samples; none where they are not labelled, or have numbers."""
        return self.targets.classes(self.local_labels) if self.labelled else ()

    @property
    def counted_classes(self) -> tuple[str, ...]:
        """Names of the classes of which each local sample has one; none where it has not one, or is not labelled."""
        return self.targets.counted(self.labels) if self.labelled else ()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample, without the batch."""
        return tuple(self.local.train.load(0).shape)

    def batch(self, samples: Samples, indices: Iterable[int]) -> Floats:
        """Return samples as the model takes them: decoded, stacked and normalised, float32 [n, C, ...].

        Args:
            samples: A partition of this task, or a view of one.
            indices: Places in `samples`; at least one.

        Raises:
            TaskError: A sample cannot be read.
        """
        return normalise(np.stack([samples.load(int(index)) for index in indices]), self.input)

    def at(self, size: int) -> "Task":
        """Return the task with samples of another size, in pixels; 0 is its own.

        Raises:
            TaskError: They are not decoded, or cannot be resized.
        """
        if not size or size == self.input.size:
            return self
        spec = self.input.at(size)

        def resized(samples: Samples) -> Samples:
            return samples.at(spec)

        global_ = None if self.global_ is None else self.global_.mapped(resized)
        return replace(self, input=spec, local=self.local.mapped(resized), global_=global_)

    def hash_samples(self) -> None:
        """Hash every sample that trials read; the samples keep the hashes."""
        partitions = [self.local.train, self.local.val, *([self.global_.val] if self.global_ is not None else [])]
        for samples in partitions:
            for index in range(len(samples)):
                samples.sample_id(index)

    def contents(self) -> TaskContents:
        """Return what a run depends on, part by part; see `tuner.task.contents`.

        Raises:
            TaskError: A file cannot be read.
        """
        settings = {
            **model_contents(self.model),
            "[input]": self.input.to_dict(),
            "[loss]": [self.loss, asdict(self.loss_settings), self.scale and asdict(self.scale)],
            "classes": [self.labels, self.head_rows, self.local_labels, self.labelled],
            "[augment]": self.augment,
            "prescribed training": self.given and asdict(self.given),
        }
        return contents_of(settings, self.partitions(), self.counted_classes)

    def fingerprint(self) -> str:
        """Hash what a run depends on, to 32 hex digits, so that a resumed run refuses a task that has changed."""
        return self.contents().fingerprint

    def partitions(self) -> Iterator[tuple[str, Samples]]:
        """Yield full name, such as ``"local.train"``, and samples of the partitions of both domains."""
        for domain_name, domain in (("local", self.local), ("global", self.global_)):
            if domain is not None:
                for partition, samples in domain.partitions():
                    yield f"{domain_name}.{partition}", samples


def _check_name(name: str) -> None:
    """Refuse a name that cannot name a folder: the run's."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MOST_NAME_BYTES or not name.isprintable() or "/" in name or name in {".", ".."}:
        raise TaskError(
            f"the name of a task must be printable, without / and of 1 to {MOST_NAME_BYTES} bytes, got {name!r}: "
            "give another as name = ... in the task file"
        )
