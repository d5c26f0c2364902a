"""A sample may have several labels, or none."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.errors import TaskError
from tuner.metrics import macro_auc
from tuner.targets.base import SEPARATOR, Label, LabelsOf, Named, Outputs, Read, Targets
from tuner.targets.names import class_names, class_numbers, label_names, sorted_names

#: Threshold of a label in bundles that have none.
THRESHOLD = 0.5


@dataclass(frozen=True)
class MultiLabel(Targets):
    """Labels are float32 [n, outputs], zeros and ones, answers a probability of each, and the score the macro AUC."""

    name = "multi-label"
    several = True
    activation = "Sigmoid"
    unit = "AUC"
    score_noun = "the macro AUC"
    score_before = "macro AUC "
    guessed = 0.5
    taken = "at least one label"
    labels_noun = "the labels of a multi-label task"
    score_note = "; several labels: macro AUC"
    no_confusions = "Samples have several labels: there is no confusion of one class with another."

    def fits(self, labels: Labels, rows: int) -> bool:
        return super().fits(labels, rows) and (not labels.size or bool(0 <= labels.min() <= labels.max() <= 1))

    def read_texts(self, labels: Sequence[tuple[str, ...]], path: Path) -> Read:
        place = sorted_names(labels)
        return tuple(place), _hot([[place[label] for label in sample] for sample in labels], len(place))

    def read_array(self, where: str, y: Array, own: Sequence[str] | None, borrowed: Sequence[str]) -> Read:
        y = class_numbers(where, y)
        if y.ndim == 1:
            names = class_names(where, int(y.max()) + 1, own, borrowed)
            return names, _hot(y[:, None].tolist(), len(names))
        if not np.isin(y, (0, 1)).all():
            raise TaskError(f"{where}: multi-hot labels must be only 0 and 1")
        names = class_names(where, y.shape[1], own, borrowed)
        hot = np.zeros((len(y), len(names)), np.float32)
        hot[:, : y.shape[1]] = y
        return names, hot

    def takes(self, labels: int) -> bool:
        return labels >= 1

    def random(self, generator: np.random.Generator, count: int, rows: int) -> Labels:
        return generator.integers(0, 2, (count, rows)).astype(np.float32)

    def staying(self, rows: RowNumbers, count: int) -> RowNumbers:
        return np.arange(count)  # without a label a sample is none of the others

    def score(self, outputs: Outputs, labels: Labels) -> float:
        return macro_auc(outputs, labels)

    def score_of_others(self, outputs: Outputs, labels: Labels, changed: Sequence[int]) -> tuple[float | None, int]:
        """Return the score of the labels that stay, on all samples, and their number."""
        kept = np.setdiff1d(np.arange(outputs.shape[1]), changed)
        return (self.score(outputs[:, kept], labels[:, kept]) if len(labels) else None), len(labels)

    def are_right(self, outputs: Floats, labels: Labels) -> Flags:
        best = outputs.argmax(axis=1)
        return np.asarray(labels[np.arange(len(best)), best] > 0)

    def correctness(self, outputs: Floats, labels: Labels) -> Doubles:
        """Return the share of a sample's labels that are right, float64 [..., n]."""
        return np.asarray(((outputs > 0) == (np.asarray(labels) > 0)).mean(axis=-1))

    def confidences(self, logits: Outputs, temperature: float | Sequence[float] = 1.0) -> Doubles:
        """Return the mean of max(p, 1 − p) of each row, float64 [..., n]."""
        scaled = np.asarray(logits, np.float64) / np.expand_dims(temperature, (-2, -1))
        return np.asarray((1 / (1 + np.exp(-np.abs(scaled)))).mean(axis=-1))

    def _losses(self, logits: Doubles, labels: Labels, temperatures: Sequence[float] | Doubles) -> Sequence[float]:
        signed = logits * (1 - 2 * np.asarray(labels, np.float64))
        return [np.logaddexp(0, signed / temperature).mean() for temperature in temperatures]

    def from_regressed(self, answers: Doubles) -> Doubles:
        return answers - 0.5

    def probabilities(self, logits: Floats) -> Doubles:
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))))

    def answers(self, logits: Floats) -> Labels:
        return np.asarray((logits > 0).astype(np.float32))

    def entropies(self, probabilities: Doubles) -> Doubles:
        own = -probabilities * np.log(np.maximum(probabilities, 1e-300))
        rest = -(1 - probabilities) * np.log(np.maximum(1 - probabilities, 1e-300))
        return np.asarray((own + rest).mean(axis=1))

    def rows(self, labels: Sequence[Label], names: Sequence[str], labels_of: LabelsOf, owner: str) -> Labels:
        named = label_names(labels, names, labels_of, owner)
        return _hot([[names.index(label) for label in of_sample] for of_sample in named], len(names))

    def parts(self, text: str) -> list[str]:
        return text.split(SEPARATOR)

    def is_right(self, answer: str, truth: str, names: Sequence[str]) -> None:
        return None

    def over(self, probabilities: Outputs, names: Sequence[str], thresholds: Sequence[float]) -> Named | None:
        own = thresholds or (THRESHOLD,) * len(names)
        rows = np.argsort(-probabilities, kind="stable")
        return tuple((names[row], float(probabilities[row])) for row in rows if probabilities[row] >= own[row])


def _hot(rows: Sequence[Sequence[int]], outputs: int) -> Floats:
    hot = np.zeros((len(rows), outputs), np.float32)
    for row, places in zip(hot, rows, strict=True):
        row[places] = 1
    return hot
