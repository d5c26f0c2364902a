"""A sample has one class."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from tuner.arrays import Array, Doubles, Flags, Floats, Labels, RowNumbers
from tuner.errors import BundleError, TaskError, TunerError
from tuner.targets.base import ACCURACY, BALANCED, TOP, Label, LabelsOf, Outputs, Read, Targets

_MULTI_HOT = 2  # dimensions
#: Classes are uneven where one has as many times the samples of another.
UNEVEN = 1.5


@dataclass(frozen=True)
class SingleLabel(Targets):
    """Labels are int64 [n], answers the class with the largest probability, and the score is the accuracy."""

    name = "single-label"
    one_class = True
    activation = "Softmax"
    score_after = " right"
    intervals = "95 % intervals"
    own_settings = frozenset({"label_smoothing", "top_k"})
    no_confusions = "Predictions were not counted by class."

    def check(self, labels: Labels, rows: int, where: str) -> None:
        if labels.ndim != 1:
            raise TaskError(
                f"{where}: the labels of a single-label task must be [n], got {list(labels.shape)}: "
                'give one label per sample, or set loss.kind = "multi-label"'
            )
        if labels.dtype != np.int64:
            raise TaskError(f"{where}: labels must be int64, got {labels.dtype}")
        if labels.size and (labels.min() < 0 or labels.max() >= rows):
            raise TaskError(f"{where}: labels must be rows 0 to {rows - 1}, got {labels.min()} to {labels.max()}")

    def read_texts(self, labels: Sequence[tuple[str, ...]], path: Path) -> Read:
        from tuner.targets.names import sorted_names

        place = sorted_names(labels)
        return tuple(place), np.array([place[label] for (label,) in labels], np.int64)

    def read_array(self, where: str, y: Array, own: Sequence[str] | None, borrowed: Sequence[str]) -> Read:
        from tuner.targets.names import class_names, class_numbers

        y = class_numbers(where, y)
        if y.ndim == _MULTI_HOT:
            raise TaskError(
                f"{where}: the labels of a single-label task must be integers [n], got multi-hot {list(y.shape)}: "
                'set loss.kind = "multi-label"'
            )
        return class_names(where, int(y.max()) + 1, own, borrowed), y.astype(np.int64)

    def need_one_class(self, error: TunerError) -> None:
        pass

    def check_names(self, names: Sequence[str], path: Path) -> None:
        if len(names) == 1:
            raise TaskError(f"{path}: the only class is {names[0]!r}: a single-label task needs at least two")

    def check_cell(self, labels: Sequence[str], cell: str, where: str) -> None:
        if len(labels) != 1:
            way_out = 'set loss.kind = "multi-label"' if labels else "name its class"
            raise TaskError(
                f"{where}: a sample of a single-label task must have one label, got {cell.strip()!r}: {way_out}"
            )

    def blank(self, count: int, rows: int = 1) -> Labels:
        return np.zeros(count, np.int64)

    def first(self, labels: Any, rows: int) -> Any:
        return labels

    def limited(self, outputs: Floats, rows: int) -> Floats:
        return np.where(np.arange(outputs.shape[1]) < rows, outputs, np.float32(-np.inf))

    def narrowed(self, labels: Labels) -> tuple[RowNumbers, Labels]:
        rows, places = np.unique(labels, return_inverse=True)
        return rows, places.astype(np.int64)

    def random(self, generator: np.random.Generator, count: int, rows: int) -> Labels:
        return generator.integers(0, rows, count)

    def wrong(self, labels: Labels, rows: int) -> Labels:
        return np.asarray((labels + 1) % rows)

    def counted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names

    def score(self, outputs: Outputs, labels: Labels) -> float:
        from tuner.metrics import accuracy

        return accuracy(outputs, labels)

    def scores(self, domain: str, outputs: Floats, labels: Labels, *, labelled: bool) -> dict[str, float]:
        """Return the accuracy; with the user's labels the top-k and balanced accuracy, and of local ones a loss."""
        from tuner.metrics import balanced_accuracy, calibrated_loss, top_k_accuracy

        values, k = super().scores(domain, outputs, labels, labelled=labelled), self.settings.top_k
        balanced = balanced_accuracy(outputs, labels, UNEVEN) if labelled else None
        values |= {} if balanced is None else {f"{domain}{BALANCED}": balanced}
        if labelled and outputs.shape[1] > k:
            values[f"{domain}{TOP}{k}{ACCURACY}"] = top_k_accuracy(outputs, labels, k)
        if labelled and domain == "local":
            loss = calibrated_loss(outputs, labels)
            values |= {"local_loss": loss} if np.isfinite(loss) else {}  # without the users' classes there is none
        return values

    def hits(self, outputs: Floats, labels: Labels) -> Flags:
        return self.are_right(outputs, labels)

    def most_frequent(self, labels: Labels) -> float:
        counts = np.bincount(labels)
        return float(counts.max() / len(labels)) if np.count_nonzero(counts) > 1 else 0.0

    def correctness(self, outputs: Floats, labels: Labels) -> Doubles:
        return np.asarray((outputs.argmax(axis=-1) == labels).astype(np.float64))

    def chance(self, labels: Labels) -> float:
        return 1 / max(2, len(np.unique(labels)))

    def interval(self, score: float, count: int) -> tuple[float, float] | None:
        from tuner.metrics import wilson

        return wilson(score, count) if count else None

    def most_variance(self, count: int) -> float:
        return 0.25 / max(1, count)

    def gain_interval(self, gains: Doubles) -> tuple[float, float]:
        from tuner.metrics import paired_interval

        return paired_interval(int((gains > 0).sum()), int((gains < 0).sum()), len(gains))

    def confidences(self, logits: Outputs, temperature: float | Sequence[float] = 1.0) -> Doubles:
        """Return the largest probability of each row, float64 [..., n]."""
        scaled = np.asarray(logits, np.float64) / np.expand_dims(temperature, (-2, -1))
        scaled -= scaled.max(axis=-1, keepdims=True)
        return np.asarray(1 / np.exp(scaled).sum(axis=-1))

    def _losses(self, logits: Doubles, labels: Labels, temperatures: Sequence[float] | Doubles) -> Sequence[float]:
        above = logits - logits.max(axis=-1, keepdims=True)
        own = np.take_along_axis(above, np.asarray(labels, np.int64)[None, :, None], axis=-1)[..., 0]
        return [
            (np.log(np.exp(above / temperature).sum(axis=-1)) - own / temperature).mean()
            for temperature in temperatures
        ]

    def probabilities(self, logits: Floats) -> Doubles:
        wide = logits.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def answers(self, logits: Floats) -> Labels:
        return np.asarray(logits.argmax(axis=-1))

    def one_hot(self, labels: Labels, rows: int) -> Floats:
        return np.eye(rows, dtype=np.float32)[labels]

    def entropies(self, probabilities: Doubles) -> Doubles:
        return np.asarray((-probabilities * np.log(np.maximum(probabilities, 1e-300))).sum(axis=1))

    def rows(self, labels: Sequence[Label], names: Sequence[str], labels_of: LabelsOf, owner: str) -> Labels:
        from tuner.targets.names import label_names

        named = label_names(labels, names, labels_of, owner)
        other = next((len(of_sample) for of_sample in named if len(of_sample) != 1), 1)
        if other != 1:
            raise BundleError(f"{owner} is single-label, but a sample has {other} labels: give one label per sample")
        return np.array([names.index(label) for (label,) in named], np.int64)

    def smoothed(self, label_smoothing: float) -> Self:
        if self.settings.label_smoothing:
            return self
        return replace(self, settings=replace(self.settings, label_smoothing=label_smoothing))
