"""The content of ``bundle.json``.

Read by hand: pydantic would add 9 MB and a tenth of a second to a process that only predicts.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum, auto
from typing import Any

from tuner.bundle.exit_policy import ExitPolicy, with_lists
from tuner.bundle.scores import Scores
from tuner.task import InputSpec

FORMAT = 1


class Section(StrEnum):
    """Optional sections of ``bundle.json``, by key."""

    EXITS = auto()
    TRAIN = auto()
    EVOLVED = "final_widths"  # named after the first edit that had a record


@dataclass(frozen=True, slots=True)
class TrainInfo:
    """What ``train/`` holds: everything that training on the device needs in addition to the model.

    Attributes:
        format: Version of the files: 1 trains a tail, 2 trains exits, 3 a tail by adapters.
        batch_size: Largest batch of the training step.
        replay_samples: Number of global samples that are trained on again.
        check_samples: Number of global samples that forgetting is measured on.
        bits: Width of the stored features.
        bytes: Size of ``train/``.
        largest_loss_difference: Largest relative difference from PyTorch's losses.
        weights: Names of the tail's weights; of formats 1 and 3.
        cut: Block number where the tail begins; of formats 1 and 3.
        exits: Number of exits; of format 2.
        left_out: Kinds of the plan's loss terms that the training step does without.
    """

    format: int
    batch_size: int = 0
    replay_samples: int = 0
    check_samples: int = 0
    bits: int = 0
    bytes: int = 0
    largest_loss_difference: float = 0.0
    weights: tuple[str, ...] = ()
    cut: int | None = None
    exits: int | None = None
    left_out: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "TrainInfo":
        """Read the section as JSON holds it; of a format that this version does not know, what it has in common.

        Raises:
            KeyError: A required key is missing.
        """
        content = {
            **content,
            "format": content["format"],
            "weights": tuple(content.get("weights", ())),
            "left_out": tuple(content.get("left_out", ())),
            "cut": content.get("split"),
        }
        names = {own.name for own in fields(cls)} & content.keys()
        return cls(**{name: content[name] for name in names})

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it, without the keys of the other format."""
        content = asdict(self, dict_factory=with_lists)
        content["split"] = content.pop("cut")
        return {name: value for name, value in content.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class RunTrial:
    """The trial that a bundle was exported from.

    Attributes:
        trial: Trial number.
        seed: The study's seed.
    """

    trial: int
    seed: int


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """The content of ``bundle.json``.

    Attributes:
        name: Name of the task.
        labels: Labels of the outputs, in order.
        input: How a sample becomes the model's input.
        input_shape: Shape of one sample, without the batch.
        loss: ``single-label`` or ``multi-label``.
        files: SHA-256 of every file, by its path in the folder.
        made: Time of writing, UTC.
        tuner: Version of tuner that wrote the bundle.
        sentence: The plan in a sentence.
        run: Trial of a run that the bundle was exported from; None where another bundle is its origin.
        parent: `Bundle.identity` of the bundle that training started from; None where a run is its origin.
        scores: Measured values.
        exits: Exits of a chain of segments; None where the model is one file.
        train: What training on the device needs; None where the bundle was exported without ``--trainable``.
        evolved: Records of edits that changed the tail while it trained, by kind: they are in the weights.
        plugins: Distribution and version of each plugin that took part, by name.
        other: Sections that this version does not know, carried over as they are.
    """

    name: str
    labels: tuple[str, ...]
    input: InputSpec
    input_shape: tuple[int, ...]
    loss: str
    files: Mapping[str, str] = field(default_factory=dict)
    made: str = ""
    tuner: str = ""
    sentence: str = ""
    run: RunTrial | None = None
    parent: str | None = None
    scores: Scores = field(default_factory=Scores)
    exits: ExitPolicy | None = None
    train: TrainInfo | None = None
    evolved: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plugins: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "BundleInfo":
        """Read the content as JSON holds it.

        Raises:
            TunerError: Parts do not fit together.
            KeyError: A required key is missing.
            TypeError: A value has another type, or ``input`` a key that this version does not know.
        """
        exits, train, run = (content.get(name) for name in (Section.EXITS, Section.TRAIN, "run"))
        names = {own.name for own in fields(cls)} | {*Section, "format"}
        return cls(
            name=content["name"],
            labels=tuple(content["labels"]),
            input=InputSpec(**{name: _tuple(value) for name, value in content["input"].items()}),
            input_shape=tuple(content["input_shape"]),
            loss=content["loss"],
            files=content.get("files", {}),
            made=content.get("made", ""),
            tuner=content.get("tuner", ""),
            sentence=content.get("sentence", ""),
            run=None if run is None else RunTrial(run["trial"], run["seed"]),
            parent=content.get("parent"),
            scores=Scores.from_dict(content.get("scores", {})),
            exits=None if exits is None else ExitPolicy.from_dict(exits),
            train=None if train is None else TrainInfo.from_dict(train),
            evolved=content.get(Section.EVOLVED, {}),
            plugins=content.get("plugins", {}),
            other={name: value for name, value in content.items() if name not in names},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content as JSON holds it."""
        optional = {
            Section.EVOLVED.value: dict(self.evolved) or None,
            Section.TRAIN.value: self.train.to_dict() if self.train else None,
            Section.EXITS.value: self.exits.to_dict() if self.exits else None,
            "run": asdict(self.run) if self.run else None,
            "plugins": dict(self.plugins) or None,
        }
        return {
            "format": FORMAT,
            "name": self.name,
            "made": self.made,
            "tuner": self.tuner,
            "labels": list(self.labels),
            "input": asdict(self.input, dict_factory=with_lists),
            "input_shape": list(self.input_shape),
            "loss": self.loss,
            "sentence": self.sentence,
            **{name: value for name, value in optional.items() if value is not None},
            **self.other,
            "scores": self.scores.to_dict(),
            "parent": self.parent,
            "files": dict(self.files),
        }


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
