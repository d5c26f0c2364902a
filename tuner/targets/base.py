"""What differs by the kind of a sample's label, from files to answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.errors import TaskError, TunerError

#: Name of a kind in files: a sample has one label, several, or numbers.
LossKind = Literal["single-label", "multi-label", "regression"]
#: What a person gives as the label of a sample: labels, or numbers, also as text.
Label = str | float | Sequence[str | float]
#: Labels with their probabilities, or outputs with their values.
Named = tuple[tuple[str, float], ...]
#: Names of the outputs, and labels in their terms.
Read = tuple[tuple[str, ...], Labels]
#: Returns the labels that a sample has by one name.
LabelsOf = Callable[[str], Sequence[str]]
Outputs = npt.NDArray[np.floating]
SEPARATOR = "|"  # between the labels, or numbers, of a sample that has several
#: Beginning of the names of a solved head's scores on all local samples, each answered by weights that never saw it.
LEFT_OUT = "local_loo"
#: Endings of the names of values: a score, a mean absolute error; and what a top-k accuracy has in its name.
ACCURACY, ERROR, TOP = "_accuracy", "_mae", "_top"
#: Ends the name of the mean over classes of the accuracy on each, which is measured where classes are uneven.
BALANCED = "_balanced_accuracy"
#: ONNX operators that only round what they are given, where a file is quantised.
ROUNDING = ("QuantizeLinear", "DequantizeLinear")
TEMPERATURES = np.geomspace(0.05, 10.0, 81)


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Settings of a task's loss.

    Attributes:
        delta: For `Regression`, the error from which the loss is linear (Huber), in standard deviations of the targets;
            None for the squared error.
        label_smoothing: For `SingleLabel`, the share of the target that all classes get alike.
        top_k: For `SingleLabel`, the k of the top-k accuracy, which is measured where there are more labels.
    """

    delta: float | None = None
    label_smoothing: float = 0.0
    top_k: int = 5


@dataclass(frozen=True, slots=True)
class TargetScale:
    """What targets are standardised by: y = mean + std · z, of each output in its own unit; the model learns z."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Targets(ABC):
    """What a sample's label is; a subclass for each kind.

    In methods, `labels` are those of samples as a task has them, `outputs` and `logits` what the head gives, float
    [n, outputs], `rows` is the number of its outputs, and `names` are theirs.

    Attributes:
        settings: Settings of the loss.
        scale: For `Regression`, what targets are standardised by; None where they are as the model learns them.
        name: Name in files; `own_settings` are the settings that no other kind has.
        has_classes: Whether labels are classes, not numbers, and answers have a probability.
        one_class: Whether a sample has one class: predictions are counted by class, the score is a share of samples.
        several: Whether a sample may have several labels.
        activation: ONNX operator that makes answers of logits; `after_logits` are those that no training needs.
        unit: Unit of the score for people.
        score_noun: The score in a sentence; `score_meaning` begins one, `score_note` follows one. `score_before` and
            `score_after` stand next to its value.
        intervals: What a score is given with for people; `uncertain` says of one of few samples that it is, by so many
            points where it is a share. `guessed` is that of guessing, NaN where it depends on the labels.
        noun: What outputs are; `labels_noun` is what labels are, `taken` how many may stand for one.
        right: What a right answer is; `right_share` is the share of them, `earlier_share` that of the user's earlier
            samples, `exit_score` the mean of `correctness`, `scored_on` what the given model is scored on.
        no_confusions: Why predictions are not counted by class.
        linear_model: What a linear layer alone is called that learns such labels.
    """

    settings: LossSettings = LossSettings()
    scale: TargetScale | None = None

    name: ClassVar[LossKind]
    has_classes: ClassVar[bool] = True
    one_class: ClassVar[bool] = False
    several: ClassVar[bool] = False
    activation: ClassVar[str]
    after_logits: ClassVar[frozenset[str]] = frozenset({"Softmax", "LogSoftmax", "Sigmoid", "Identity", *ROUNDING})
    own_settings: ClassVar[frozenset[str]] = frozenset()
    unit: ClassVar[str] = "%"
    score_noun: ClassVar[str] = "the accuracy"
    score_meaning: ClassVar[str] = "Accuracies are"
    score_note: ClassVar[str] = ""
    score_before: ClassVar[str] = ""
    score_after: ClassVar[str] = ""
    intervals: ClassVar[str] = ""
    guessed: ClassVar[float] = math.nan
    uncertain: ClassVar[str] = "an accuracy on them is uncertain by up to {:.0f} points either way"
    noun: ClassVar[str] = "classes"
    labels_noun: ClassVar[str]
    taken: ClassVar[str] = "one label"
    right: ClassVar[str] = "right"
    right_share: ClassVar[str] = "global accuracy"
    earlier_share: ClassVar[str] = "accuracy on earlier samples"
    exit_score: ClassVar[str] = "accuracy"
    scored_on: ClassVar[str] = ", scored on the classes it knows"
    no_confusions: ClassVar[str]
    linear_model: ClassVar[str] = "logistic regression"

    # Labels as a task has them.

    def check(self, labels: Labels, rows: int, where: str) -> None:
        """Raise a `TaskError` for labels that are not those of a head with so many outputs."""
        if labels.shape[1:] != (rows,) or labels.dtype != np.float32:
            got = f"{labels.dtype} {list(labels.shape)}"
            raise TaskError(f"{where}: {self.labels_noun} must be float32 [n, {rows}], got {got}")

    def fits(self, labels: Labels, rows: int) -> bool:
        """Return whether stored labels are those of a head with so many outputs."""
        try:
            self.check(labels, rows, "")
        except TaskError:
            return False
        return True

    @abstractmethod
    def read_texts(self, labels: Sequence[tuple[str, ...]], path: Path) -> Read:
        """Read the labels that a listing has of each sample; raise a `TaskError` where they cannot be."""

    @abstractmethod
    def read_array(self, where: str, y: Array, own: Sequence[str] | None, borrowed: Sequence[str]) -> Read:
        """Read an array: integers [n] or [n, 1], or multi-hot [n, k]; or numbers [n] or [n, outputs].

        `own` are names in the file, `borrowed` those to use where it has none. Anything else is a `TaskError`.
        """

    def need_classes(self, error: TunerError) -> None:
        """Raise the error where labels are numbers."""

    def need_one_class(self, error: TunerError) -> None:
        """Raise the error where a sample has not one class."""
        raise error

    def joined(self, known: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the names of a model's outputs followed by new ones of a task; None where it can learn no others."""
        return (*known, *(name for name in own if name not in known))

    def check_names(self, names: Sequence[str], path: Path) -> None:
        """Raise a `TaskError` for names of too few outputs."""

    def takes(self, labels: int) -> bool:
        """Return whether so many labels may stand for one."""
        return labels == 1

    def check_cell(self, labels: Sequence[str], cell: str, where: str) -> None:
        """Raise a `TaskError` for a cell of a listing with as many labels as a sample cannot have."""

    def blank(self, count: int, rows: int = 1) -> Labels:
        """Return labels of so many samples that stand for nothing."""
        return np.zeros((count, rows), np.float32)

    def first(self, labels: Any, rows: int) -> Any:
        """Return labels, of numpy or PyTorch, as a head with the first outputs alone takes them."""
        return labels[:, :rows]

    def limited(self, outputs: Floats, rows: int) -> Floats:
        """Return outputs as a head with the first rows alone gives them."""
        return outputs[:, :rows]

    def staying(self, rows: RowNumbers, count: int) -> RowNumbers:
        """Return which of so many samples stay when all but those in some rows lose their label."""
        return rows

    def narrowed(self, labels: Labels) -> tuple[RowNumbers, Labels]:
        """Return the rows of the head that a model of these labels alone has, and the labels as that model takes them.

        Labels of several, and numbers, keep all rows.
        """
        return np.arange(labels.shape[1]), labels

    @abstractmethod
    def random(self, generator: np.random.Generator, count: int, rows: int) -> Labels:
        """Return random labels."""

    def wrong(self, labels: Labels, rows: int) -> Labels:
        """Return labels that are others than these."""
        return 1 - labels

    def classes(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of the classes that some outputs are; none of numbers."""
        return rows

    def counted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the classes that predictions are counted by; none where a sample has not one."""
        return ()

    def check_outputs(self, outputs: int, names: Sequence[str], factory: str) -> None:
        """Raise a `TaskError` where a model must have an output for each name, but has another number of them."""

    def ends(self, end: str, factory: str) -> bool:
        """Return whether a model ends in what makes answers of its outputs; a `TaskError` of other labels' end."""
        if end and end.removeprefix("Log") != self.activation:
            raise TaskError(
                f"{factory} ends in {end}, so it was trained with another loss than loss.kind = {self.name!r}, after "
                f"which {self.activation} gives the probabilities: set loss.kind, or return the outputs before it"
            )
        return bool(end)

    def scale_of(self, labels: Labels, names: Sequence[str], owner: str) -> TargetScale | None:
        """Return what labels are to be standardised by; a `TaskError` where those of an output are all the same."""
        return None

    def has_scale(self, rows: int) -> bool:
        """Return whether the scale is one that a head with so many outputs can have."""
        return self.scale is None

    def default_scale(self, rows: int) -> TargetScale | None:
        """Return the scale that a bundle has."""
        return self.scale

    def smoothed(self, label_smoothing: float) -> Self:
        """Return these targets with a recipe's label smoothing where the task has none of its own."""
        return self

    # What answers are worth.

    @abstractmethod
    def score(self, outputs: Outputs, labels: Labels) -> float:
        """Return what is called accuracy."""

    def score_of_others(self, outputs: Outputs, labels: Labels, changed: Sequence[int]) -> tuple[float | None, int]:
        """Return the score, and the number, of the samples that have none of the labels that change."""
        from tuner.targets.strata import presence

        rows = ~presence(labels, np.arange(outputs.shape[1]))[:, changed].any(axis=1)
        return (self.score(outputs[rows], labels[rows]) if rows.any() else None), int(rows.sum())

    def scores(self, domain: str, outputs: Floats, labels: Labels, *, labelled: bool) -> dict[str, float]:
        """Return all scores by name, which begins with the domain; without the user's labels, those of agreement."""
        return {f"{domain}{ACCURACY}": self.score(outputs, labels)}

    def are_right(self, outputs: Floats, labels: Labels) -> Flags:
        """Return for each sample whether the first answer is right, bool [n]."""
        return np.asarray(self.correctness(outputs, labels) == 1)

    def hits(self, outputs: Floats, labels: Labels) -> Flags | None:
        """Return for each sample whether it is right, bool [n], where the score is the share of these; else None."""
        return None

    def most_frequent(self, labels: Labels) -> float:
        """Return the share of the most frequent class; 0 where samples have not one of several classes."""
        return 0.0

    @abstractmethod
    def correctness(self, outputs: Floats, labels: Labels) -> Doubles:
        """Return how far each answer is right, float64 [..., n]; outputs are [..., n, outputs]."""

    def loss(self, logits: Doubles, labels: Labels) -> float:
        """Return the mean negative log-likelihood of labels."""
        return float(self._losses(logits[None], labels, (1.0,))[0])

    def chance(self, labels: Labels) -> float:
        """Return the accuracy of guessing."""
        return self.guessed

    def text(self, score: float, count: int = 0) -> str:
        """Return a score for people, with its 95 % interval where it is a share of so many samples."""
        from tuner.metrics import percent

        return percent(score, count if self.interval(score, count) else 0)

    def interval(self, score: float, count: int) -> tuple[float, float] | None:
        """Return the 95 % interval (Wilson) of a score where it is a share of so many samples, at least one."""
        return None

    def most_variance(self, count: int) -> float:
        """Return the largest variance of a score where it is a share of so many samples; else 0."""
        return 0.0

    def gain_interval(self, gains: Doubles) -> tuple[float, float]:
        """Return the 95 % interval of the mean gain of `correctness`, of each sample [n]."""
        from tuner.metrics import Z_95

        gain, half = float(gains.mean()), Z_95 * float(gains.std()) / math.sqrt(len(gains))
        return gain - half, gain + half

    # Exits.

    def taught(self, distilled: float, pseudo: float) -> dict[str, Any]:
        """Return settings of exits, by name, that are others than those given, as final answers are of one kind."""
        return {}

    @abstractmethod
    def confidences(self, logits: Outputs, temperature: float | Sequence[float] = 1.0) -> Doubles:
        """Return the confidence of each answer, float64 [..., n].

        Logits are float [..., n, outputs], where confidences are agreements those of all exits of a chain; the
        temperature is their divisor, one for all or one for each of [...].
        """

    def compared(self, logits: Outputs) -> Outputs | None:
        """Return the values of exits that are compared with those of the exit before; None where none are."""
        return None

    def calibration_error(self, logits: Outputs, right: Doubles, temperature: float = 1.0) -> float:
        """Return the expected calibration error; NaN where a confidence is no probability to be right."""
        from tuner.metrics import expected_calibration_error

        return expected_calibration_error(self.confidences(logits, temperature), right)

    def fitted_temperature(self, logits: Outputs, labels: Labels) -> float:
        """Return the temperature of exits, [exits, n, outputs], with the least loss (Guo et al., 2017)."""
        return float(TEMPERATURES[int(np.argmin(self._losses(np.asarray(logits, np.float64), labels, TEMPERATURES)))])

    @abstractmethod
    def _losses(self, logits: Doubles, labels: Labels, temperatures: Sequence[float] | Doubles) -> Sequence[float]:
        """Return the mean negative log-likelihood of logits [exits, n, outputs] at each temperature."""

    def choices(self, labels: Labels, weights: Doubles, *logits: Doubles) -> tuple[Array, ...]:
        """Return labels as choices of a class each, with their weights and logits: `as_choices`; numbers are none."""
        from tuner.targets.strata import as_choices

        return as_choices(labels, weights, *logits)

    def from_regressed(self, answers: Doubles) -> Doubles:
        """Return as logits what a head answers that is solved for labels as numbers."""
        return answers

    @abstractmethod
    def probabilities(self, logits: Floats) -> Doubles:
        """Return the probabilities, or the values, of logits [..., outputs]."""

    @abstractmethod
    def answers(self, logits: Floats) -> Labels:
        """Return what logits [..., outputs] answer, as labels have it."""

    def one_hot(self, labels: Labels, rows: int) -> Floats:
        """Return labels as probabilities, or as values, float32 [n, rows]."""
        return labels

    @abstractmethod
    def entropies(self, probabilities: Doubles) -> Doubles:
        """Return the entropy of each answer, float64 [n], from probabilities [n, outputs]."""

    def exit_losses(self, probabilities: Floats) -> tuple[float, ...]:
        """Return 1 − the probability that each of some exits, [exits, outputs], gives to the last one's answer."""
        return tuple((1 - probabilities[:-1, probabilities[-1].argmax()]).tolist())

    # Labels and answers on a device; a `BundleError` is raised for a label that is none of the names, or no number.

    @abstractmethod
    def rows(self, labels: Sequence[Label], names: Sequence[str], labels_of: LabelsOf, owner: str) -> Labels:
        """Return the labels of each sample as the loss takes them; `owner` is the model's name, for messages."""

    def parts(self, text: str) -> list[str]:
        """Return the labels of a sample that are written as one text."""
        return [text]

    def is_right(self, answer: str, truth: str, names: Sequence[str]) -> bool | None:
        """Return whether an answer is right; None where it is one of several, which says little."""
        return answer == truth

    def stratum(self, label: str | None) -> str | None:
        """Return what a sample is divided evenly by: its label, which may be unknown, or of numbers nothing."""
        return label

    def has(self, label: str, names: Sequence[str]) -> bool:
        """Return whether a model with such outputs can learn a sample's label."""
        return set(self.parts(label)) <= set(names)

    def knows(self, label: str, names: Sequence[str]) -> bool:
        """Return whether a model with such outputs can be right of a sample."""
        return bool(set(self.parts(label)) & set(names))

    def texts(self, logits: Floats, names: Sequence[str]) -> list[str]:
        """Return the answers of logits as text."""
        return [names[row] for row in logits.argmax(axis=1)]

    def best(self, probabilities: Outputs, names: Sequence[str]) -> tuple[str, float]:
        """Return the first answer to a sample as text, and its probability, which is NaN of numbers."""
        best = int(probabilities.argmax())
        return names[best], float(probabilities[best])

    def over(self, probabilities: Outputs, names: Sequence[str], thresholds: Sequence[float]) -> Named | None:
        """Return the labels over their thresholds, the most probable first; None where a sample has one answer."""
        return None

    def values(self, outputs: Outputs, names: Sequence[str]) -> Named | None:
        """Return each output of a sample with its value; None where there are labels."""
        return None
