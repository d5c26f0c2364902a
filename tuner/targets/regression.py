"""A sample has numbers: targets. What the model learns of them has mean 0 and deviation 1, whatever their unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array, Doubles, Floats, Labels
from tuner.errors import BundleError, TaskError, TunerError
from tuner.metrics import mean_absolute_error, r_squared
from tuner.targets.base import ERROR, SEPARATOR, Label, LabelsOf, Named, Outputs, Read, Targets, TargetScale

#: Largest error, in standard deviations of the targets, of an output that counts as right.
TOLERANCE = 0.5
#: Least confidence of an exit, and of one that has none before it: only the threshold 0 is below.
LEAST = 1e-6


@dataclass(frozen=True)
class Regression(Targets):
    """Labels and answers are float32 [n, outputs], standardised, and the score is R², at least 0."""

    name = "regression"
    has_classes = False
    linear_model = "ridge regression"
    activation = "Identity"
    after_logits = frozenset({"Identity"})  # outputs mean what the file computes, to its end
    own_settings = frozenset({"delta"})
    unit = "R²"
    score_noun = "R²"
    guessed = 0.0
    uncertain = "R² on them is uncertain"
    score_before = "R² "
    score_meaning = "R² is the share of the targets' variance that is explained,"
    noun = "outputs"
    labels_noun = "the targets of a regression"
    right = f"within {TOLERANCE:g} standard deviations of their targets"
    right_share = f"the share of global samples {right}"
    earlier_share = f"the share of earlier samples {right}"
    exit_score = "targets met:"
    scored_on = ""
    no_confusions = "The model predicts numbers: there are no classes."

    def check(self, labels: Labels, rows: int, where: str) -> None:
        super().check(labels, rows, where)
        if not np.isfinite(labels).all():
            raise TaskError(f"{where}: {self.labels_noun} must be finite numbers: remove the others")

    def need_classes(self, error: TunerError) -> None:
        raise error

    def read_texts(self, labels: Sequence[tuple[str, ...]], path: Path) -> Read:
        width = len(labels[0]) if labels else 1
        rows = np.empty((len(labels), width))
        for row, sample in zip(rows, labels, strict=True):
            if len(sample) != width or not width:
                raise TaskError(
                    f"{path}: each sample of a regression must have as many numbers, separated by |, "
                    f"got {width} and {len(sample)}"
                )
            for column, cell in enumerate(sample):
                try:
                    row[column] = float(cell)
                except ValueError:
                    raise TaskError(
                        f"{path}: the target of a regression must be a number, got {cell!r}: correct it, or leave out "
                        'loss.kind = "regression"'
                    ) from None
        return _checked(str(path), rows, None)

    def read_array(self, where: str, y: Array, own: Sequence[str] | None, borrowed: Sequence[str]) -> Read:
        if y.ndim not in {1, 2} or y.dtype.kind not in "biuf" or y.shape[1:] == (0,):
            got = f"{y.dtype} {list(y.shape)}"
            raise TaskError(f"{where}: {self.labels_noun} must be numbers [n] or [n, outputs], got {got}")
        return _checked(where, y.reshape(len(y), -1), own)

    def joined(self, known: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...] | None:
        return known if own == known else None

    def classes(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        return ()

    def check_outputs(self, outputs: int, names: Sequence[str], factory: str) -> None:
        if outputs != len(names):
            raise TaskError(
                f"{factory} gives {outputs} outputs, but the targets have {len(names)} "
                f"({', '.join(names[:4])}): a regression needs as many; give the factory the right number"
            )

    def ends(self, end: str, factory: str) -> bool:
        return False

    def scale_of(self, labels: Labels, names: Sequence[str], owner: str) -> TargetScale:
        targets = labels.astype(np.float64)
        mean, std = targets.mean(axis=0), targets.std(axis=0)
        constant = np.flatnonzero(std == 0)
        if len(constant):
            raise TaskError(
                f"{owner}: the training targets of {names[constant[0]]!r} are all {mean[constant[0]]:g}, so that there "
                "is nothing to learn: leave this output out, or give other samples"
            )
        return TargetScale(tuple(mean.tolist()), tuple(std.tolist()))

    def has_scale(self, rows: int) -> bool:
        return self.scale is not None and len(self.scale.mean) == len(self.scale.std) == rows

    def default_scale(self, rows: int) -> TargetScale | None:
        return self.scale or TargetScale((0.0,) * rows, (1.0,) * rows)  # targets are what the model answers

    def random(self, generator: np.random.Generator, count: int, rows: int) -> Labels:
        return generator.normal(size=(count, rows)).astype(np.float32)

    def score(self, outputs: Outputs, labels: Labels) -> float:
        return max(0.0, r_squared(outputs, labels))

    def scores(self, domain: str, outputs: Floats, labels: Labels, *, labelled: bool) -> dict[str, float]:
        """Return R², and the mean absolute error in the unit of the targets."""
        std = self.scale.std if self.scale is not None else ()
        error = mean_absolute_error(outputs, labels, std)
        return {**super().scores(domain, outputs, labels, labelled=labelled), f"{domain}{ERROR}": error}

    def correctness(self, outputs: Floats, labels: Labels) -> Doubles:
        """Return the share of a sample's targets that the outputs are within `TOLERANCE` of, float64 [..., n]."""
        return np.asarray((np.abs(outputs - np.asarray(labels, np.float32)) <= TOLERANCE).mean(axis=-1))

    def text(self, score: float, count: int = 0) -> str:
        return f"{score:.3f}"

    def taught(self, distilled: float, pseudo: float) -> dict[str, Any]:
        return {"distilled": distilled + pseudo, "pseudo": 0.0, "temperature": 1.0, "gated": False}

    def confidences(self, logits: Outputs, temperature: float | Sequence[float] = 1.0) -> Doubles:
        """Return the agreement of each exit with the one before it, which no temperature changes."""
        return agreements(logits)

    def compared(self, logits: Outputs) -> Outputs:
        return logits

    def calibration_error(self, logits: Outputs, right: Doubles, temperature: float = 1.0) -> float:
        return math.nan

    def fitted_temperature(self, logits: Outputs, labels: Labels) -> float:
        return 1.0

    def _losses(self, logits: Doubles, labels: Labels, temperatures: Sequence[float] | Doubles) -> Sequence[float]:
        return [((logits - labels) ** 2).mean()]

    def choices(self, labels: Labels, weights: Doubles, *logits: Doubles) -> tuple[Array, ...]:
        return super().choices(np.zeros(0, np.int64), weights[:0], *(of_kind[..., :0, :] for of_kind in logits))

    def probabilities(self, logits: Floats) -> Doubles:
        return logits.astype(np.float64)

    def answers(self, logits: Floats) -> Labels:
        return logits

    def entropies(self, probabilities: Doubles) -> Doubles:
        return np.zeros(len(probabilities))

    def exit_losses(self, probabilities: Floats) -> tuple[float, ...]:
        """Return 1 − the agreement of each exit but the last with the last; they are values here."""
        values = probabilities / np.array(self._known_scale.std)
        return tuple((1 - agreement(values[:-1], values[-1])).tolist())

    def rows(self, labels: Sequence[Label], names: Sequence[str], labels_of: LabelsOf, owner: str) -> Labels:
        scale = self._known_scale
        rows = np.array([_numbers(target, names, owner) for target in labels]).reshape(-1, len(scale.mean))
        return np.asarray(((rows - np.array(scale.mean)) / np.array(scale.std)).astype(np.float32))

    def is_right(self, answer: str, truth: str, names: Sequence[str]) -> bool:
        near, far = self.rows([answer, truth], names, lambda name: (name,), "the model")
        return bool((np.abs(near - far) <= TOLERANCE).all())

    def stratum(self, label: str | None) -> None:
        return None

    def has(self, label: str, names: Sequence[str]) -> bool:
        try:
            _numbers(label, names, "the model")
        except BundleError:
            return False
        return True

    def knows(self, label: str, names: Sequence[str]) -> bool:
        return True

    def texts(self, logits: Floats, names: Sequence[str]) -> list[str]:
        scale = self._known_scale
        return list(map(_text, logits * np.array(scale.std) + np.array(scale.mean)))

    def best(self, probabilities: Outputs, names: Sequence[str]) -> tuple[str, float]:
        return _text(probabilities), math.nan

    def values(self, outputs: Outputs, names: Sequence[str]) -> Named | None:
        return tuple(zip(names, map(float, outputs), strict=True))

    @property
    def _known_scale(self) -> TargetScale:
        if self.scale is None:
            raise BundleError("targets are read in the unit of a bundle: give its scale")
        return self.scale


def agreement(values: Floats | Doubles, before: Floats | Doubles) -> Doubles:
    """Return the confidence of standardised values [..., n, outputs], float64 [..., n]: exp(−d), at least `LEAST`.

    d is the largest difference over the outputs from those of the exit before. Source: PABEE (Zhou et al., NeurIPS
    2020), where several exits in a row must agree; here two do.
    """
    with np.errstate(invalid="ignore"):  # of two infinite values; NaN is above no threshold
        distance = np.abs(values.astype(np.float64) - before).max(axis=-1)
    return np.asarray(np.maximum(np.exp(-distance), LEAST))


def agreements(values: Floats | Doubles) -> Doubles:
    """Return the confidence of every exit, float64 [exits, n], from standardised values [exits, n, outputs]."""
    first = np.full((1, values.shape[1]), LEAST)
    return np.concatenate([first, agreement(values[1:], values[:-1])])


def output_names(count: int) -> tuple[str, ...]:
    """Return the names of outputs that nobody named: ``"output 0"`` and so on."""
    return tuple(f"output {number}" for number in range(count))


def are_named(names: Sequence[str]) -> bool:
    """Return whether somebody named the outputs."""
    return tuple(names) != output_names(len(names))


def _text(values: Array) -> str:
    return SEPARATOR.join(f"{value:.6g}" for value in values.tolist())


def _numbers(target: Label, names: Sequence[str], owner: str) -> list[float]:
    given = [target] if isinstance(target, str) or not isinstance(target, Sequence) else target
    parts = [part for one in given for part in (one.split(SEPARATOR) if isinstance(one, str) else [one])]
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != len(names) or not all(map(math.isfinite, numbers)):
        raise BundleError(
            f"{owner} predicts {len(names)} numbers ({', '.join(names[:4])}), but a sample has "
            f"the target {target!r:.80}: give a number for each, separated by {SEPARATOR}"
        )
    return numbers


def _checked(where: str, values: Array, own: Sequence[str] | None) -> tuple[tuple[str, ...], Floats]:
    targets = values.astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(targets).all(axis=1))
    if len(broken):
        raise TaskError(
            f"{where}: targets must be finite numbers, got {values[broken[0]].tolist()} for sample {broken[0]}: "
            "remove the sample or correct it"
        )
    names = tuple(own) if own is not None else output_names(targets.shape[1])
    if len(names) != targets.shape[1] or len(set(names)) != len(names):
        raise TaskError(
            f"{where}: {targets.shape[1]} outputs need as many different names in 'classes', got {len(set(names))}"
        )
    return names, targets
