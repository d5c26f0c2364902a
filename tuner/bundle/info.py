"""The content of ``bundle.json``.

Read by hand: pydantic would add 9 MB and a tenth of a second to a process that only predicts.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum, auto
from typing import Annotated, Any, cast, get_args

from tuner.bundle.exit_policy import ExitPolicy, with_lists
from tuner.bundle.scores import Int8Info, Scores
from tuner.bundle.table import MOST, Table, Within
from tuner.errors import BundleError
from tuner.reading import same_form
from tuner.targets import LossKind, Targets, TargetScale, targets_of
from tuner.task import InputSpec
from tuner.task.inputs import input_kind

#: Versions of ``bundle.json``, of what ``train/`` holds, and of the distance to the user's samples.
FORMAT = 1
TRAIN_FORMAT = 1
UNKNOWN_FORMAT = 1
#: Parts of a round's samples, each judged by a model that was trained on the others.
FOLDS, MOST_FOLDS = 5, 20
_MOST_SIZE = 2**16  # of an edge, in pixels, or of a batch
_MOST_INPUT = 2**26  # numbers in one sample


class Section(StrEnum):
    """Optional sections of ``bundle.json``, by key."""

    EXITS = auto()
    TRAIN = auto()
    LABEL_THRESHOLDS = auto()
    LABEL_MAP = auto()
    TARGETS = auto()
    INT8 = auto()
    EVOLVED = auto()
    UNKNOWN = auto()


class TrainKind(StrEnum):
    """What a bundle trains: a tail by steps or adapters, exits, or a head: solved for, from ``sums`` by a plugin."""

    TAIL = auto()
    ADAPTERS = auto()
    EXITS = auto()
    CLOSED_FORM = "closed-form"
    SUMS = auto()


@dataclass(frozen=True, slots=True)
class TrainInfo:
    """What ``train/`` holds: everything that training on the device needs in addition to the model.

    Attributes:
        kind: One of `TrainKind`, or of another version.
        batch_size: Largest batch of the training step.
        replay_samples: Number of global samples that are trained on again.
        check_samples: Number of global samples that forgetting is measured on.
        bits: Width of the stored features.
        bytes: Size of ``train/``.
        largest_loss_difference: Largest relative difference from PyTorch's losses.
        weights: Names of the tail's weights; none of exits.
        cut: Block number where the tail begins; None of exits.
        exits: Number of exits; None of other kinds.
        folds: Parts of a round's samples, each of which is judged by a model that was trained on the others; `FOLDS`
            where it is None.
        left_out: Kinds of the plan's loss terms, changes of batches and evolving edits that a device trains without.
        own_samples: Number of the user's own samples, as features; None of exits.
        own_bytes: Most bytes that these may take in bundles that are trained from this one; 0 where they are left out.
            None where a head is solved for, which needs all of them, and of exits.
        solver: Name of the plugin that solves for the head, of the kind ``sums``.
        format: Version of the files; `TRAIN_FORMAT` is what this version reads.
    """

    kind: str = ""
    batch_size: Annotated[int, Within(0, _MOST_SIZE)] = 0
    replay_samples: int = 0
    check_samples: int = 0
    bits: Annotated[int, Within(0, 32)] = 0
    bytes: int = 0
    largest_loss_difference: float = 0.0
    weights: tuple[str, ...] = ()
    cut: int | None = None
    exits: int | None = None
    folds: Annotated[int | None, Within(2, MOST_FOLDS)] = None
    left_out: tuple[str, ...] = ()
    own_samples: int | None = None
    own_bytes: int | None = None
    solver: str | None = None
    format: int = TRAIN_FORMAT

    @property
    def is_solved(self) -> bool:
        """Whether a head is solved for; else steps train."""
        return self.kind in {TrainKind.CLOSED_FORM, TrainKind.SUMS}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "TrainInfo":
        """Read the section as JSON holds it; of an unknown format, what it has in common. Errors as for `Table`."""
        section = Table(content, "[train] ")
        return section.read(cls, format=section.integer("format"))

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it, without the keys of other kinds."""
        content = asdict(self, dict_factory=with_lists)
        return {name: value for name, value in content.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class UnknownInfo:
    """From where on a sample is none of the user's classes.

    Attributes:
        threshold: Largest distance to the user's samples that is accepted.
        samples: Number of samples that it was set on, none of which had been learned by what measured it.
        reads: Name of the value in the model that enters its head.
        format: Version of the distance; `UNKNOWN_FORMAT` is what this version reads.
    """

    threshold: Annotated[float, Within(1e-9, 2)]
    samples: int
    reads: str
    format: int = UNKNOWN_FORMAT


@dataclass(frozen=True, slots=True)
class RunTrial:
    """The number of the trial that a bundle was exported from, and its study's seed."""

    trial: int
    seed: Annotated[int, Within(-MOST, MOST)]


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """The content of ``bundle.json``.

    Attributes:
        name: Name of the task.
        labels: Labels of the outputs, in order.
        input: How a sample becomes the model's input.
        input_shape: Shape of one sample, without the batch.
        loss: ``single-label``, ``multi-label`` or ``regression``.
        files: SHA-256 of every file, by its path in the folder.
        made: Time of writing, UTC.
        tuner: Version of tuner that wrote the bundle.
        sentence: The plan in a sentence.
        run: Trial of a run that the bundle was exported from; None where another bundle is its origin.
        parent: `Bundle.identity` of the bundle that training started from; None where a run is its origin.
        scores: Measured values.
        exits: Exits of a chain of segments; None where the model is one file.
        train: What training on the device needs; None where the bundle was exported without ``--trainable``.
        label_thresholds: Of each label, where a sample may have several: what is over its threshold is predicted; 0.5
            where there are none.
        label_map: Labels that a sample has by one name: its own, and those that are more general.
        scale: What targets were standardised by: a value is mean + std · output; None where there are labels.
        int8: How the model compares with the same one in float32; None where it computes in float32.
        evolved: Records of edits that changed the tail while it trained, by kind: they are in the weights.
        unknown: From where on a sample is none of the user's classes; None where the bundle cannot tell.
        plugins: Distribution and version of each plugin that took part, by name.
        needs: Distribution and version of the plugin that reads the samples; empty where tuner itself does.
        other: Sections that this version does not know, carried over as they are.
    """

    name: str
    labels: tuple[str, ...]
    input: InputSpec
    input_shape: tuple[int, ...]
    loss: LossKind
    files: Mapping[str, str] = field(default_factory=dict)
    made: str = ""
    tuner: str = ""
    sentence: str = ""
    run: RunTrial | None = None
    parent: str | None = None
    scores: Scores = field(default_factory=Scores)
    exits: ExitPolicy | None = None
    train: TrainInfo | None = None
    label_thresholds: Annotated[tuple[float, ...], Within(0, 1)] = ()
    label_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scale: TargetScale | None = None
    int8: Int8Info | None = None
    evolved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unknown: UnknownInfo | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    other: Mapping[str, Any] = field(default_factory=dict)

    @property
    def targets(self) -> Targets:
        """What a sample's label is."""
        return targets_of(self.loss, scale=self.scale)

    def labels_of(self, name: str) -> tuple[str, ...]:
        """Return the labels that a sample has by one name: itself alone, where `label_map` does not have it."""
        name = name if name in self.labels else same_form(name)
        return self.label_map.get(name, (name,))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "BundleInfo":
        """Read the content as JSON holds it.

        Raises:
            TunerError: A value is of another type or out of bounds, or parts do not fit together.
            KeyError: A required key is missing.
            TypeError: ``input`` has a key that this version does not know.
        """
        table = Table(content)
        names = {own.name for own in fields(cls)} | {*Section, "format"}
        labels = table.table(Section.LABEL_MAP)
        return table.read(
            cls,
            input=_input(content["input"], table.table("input"), table.text("needs") if "needs" in table else ""),
            input_shape=_shape(table),
            loss=_loss(table.text("loss")),
            files=table.table("files").values_of(str, "text"),
            run=table.table("run").read(RunTrial) if "run" in table else None,
            scores=Scores.from_dict(table.table("scores").content),
            exits=ExitPolicy.from_dict(table.table(Section.EXITS).content) if Section.EXITS in table else None,
            train=TrainInfo.from_dict(table.table(Section.TRAIN).content) if Section.TRAIN in table else None,
            label_map={name: labels.texts(name) for name in labels.content},
            scale=_scale(table.table(Section.TARGETS)) if Section.TARGETS in table else None,
            int8=Int8Info.from_dict(table.table(Section.INT8).content) if Section.INT8 in table else None,
            evolved=table.table(Section.EVOLVED).values_of(Mapping, "a table"),
            unknown=table.table(Section.UNKNOWN).read(UnknownInfo, whole=True) if Section.UNKNOWN in table else None,
            plugins=table.table("plugins").values_of(str, "text"),
            other={name: value for name, value in content.items() if name not in names},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON holds it."""
        optional = {
            Section.EVOLVED.value: dict(self.evolved) or None,
            Section.TRAIN.value: self.train.to_dict() if self.train else None,
            Section.EXITS.value: self.exits.to_dict() if self.exits else None,
            Section.UNKNOWN.value: asdict(self.unknown) if self.unknown else None,
            "run": asdict(self.run) if self.run else None,
            "plugins": dict(self.plugins) or None,
            "needs": self.needs or None,
            Section.LABEL_THRESHOLDS.value: list(self.label_thresholds) or None,
            Section.LABEL_MAP.value: {name: list(labels) for name, labels in self.label_map.items()} or None,
            Section.INT8.value: self.int8.to_dict() if self.int8 else None,
            Section.TARGETS.value: asdict(self.scale, dict_factory=with_lists) if self.scale else None,
        }
        return {
            "format": FORMAT,
            "name": self.name,
            "made": self.made,
            "tuner": self.tuner,
            "labels": list(self.labels),
            "input": self.input.to_dict(),
            "input_shape": list(self.input_shape),
            "loss": self.loss,
            "sentence": self.sentence,
            **{name: value for name, value in optional.items() if value is not None},
            **self.other,
            "scores": self.scores.to_dict(),
            "parent": self.parent,
            "files": dict(self.files),
        }


def _shape(table: Table) -> tuple[int, ...]:
    shape = table.integers("input_shape", least=1, most=_MOST_INPUT)
    if not shape or math.prod(shape) > _MOST_INPUT:
        raise table.wrong("input_shape", f"the shape of at most {_MOST_INPUT:,} numbers", shape)
    return shape


def _input(content: Mapping[str, Any], section: Table, needs: str) -> InputSpec:
    """Read ``input``; a key that this version does not know is an error of `InputSpec`."""
    kind = section.text("kind")
    sizes = {name: section.integer(name, None, least=1, most=_MOST_SIZE) for name in ("size", "resize")}
    lengths = {name: section.integer(name, None, least=1, most=_MOST_INPUT) for name in ("window", "hop")}
    scales = {name: section.numbers(name, ()) for name in ("mean", "std")}
    columns = section.texts("columns") if "columns" in section else ()
    spec = InputSpec(**{**content, "kind": kind, **sizes, **lengths, **scales, "columns": columns})
    input_kind(kind, needs).check(spec)
    return spec


def _loss(kind: str) -> LossKind:
    if kind not in get_args(LossKind):
        raise BundleError(f"loss must be {' or '.join(get_args(LossKind))}, got {kind!r:.40}: update tuner")
    return cast("LossKind", kind)


def _scale(section: Table) -> TargetScale:
    scale = section.read(TargetScale)
    if not all(value > 0 for value in scale.std):
        raise section.wrong("std", "numbers above 0", list(scale.std))
    return scale
