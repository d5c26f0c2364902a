"""One round: train on the ring's samples, and let the gate judge the new bundle, which is not put in place here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tuner.bundle.format import Bundle
from tuner.errors import TunerError
from tuner.runtime.infer.personaliser import Personaliser, Prediction
from tuner.runtime.service.gate import GlobalCheck, HoldoutComparison, Rules, Verdict, judge, refused
from tuner.runtime.service.ring import RingSample

BATCH = 32
LABEL_SEPARATOR = "|"  # between the labels of a sample that has several
SHOWN_LABELS = 3
HELD_OUT = 5  # one sample in so many is never trained on, but judges


class DeviceTrainer(Protocol):
    """Trains on this device."""

    def train(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> Path:
        """Train from a bundle's weights and return a new bundle's folder, which the caller removes.

        Args:
            samples: Decoded samples.
            labels: Label of each sample; None where they have none.
        """
        ...


@dataclass(frozen=True, slots=True)
class RoundTraining:
    """What a round needs in addition to the samples.

    Attributes:
        trainer: Function that makes a trainer for the bundle in use.
        global_accuracy: Function that returns a bundle's accuracy on its global check samples, in [0, 1]; None where
            it has none.
        learns: Function that returns whether a bundle can be trained on a label; samples with other labels are left
            out, which the reason says.
    """

    trainer: Callable[[Bundle], DeviceTrainer]
    global_accuracy: Callable[[Bundle], float | None] = lambda _: None
    learns: Callable[[Bundle, str], bool] = lambda _bundle, _label: True


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Result of a round.

    Attributes:
        made: Folder of the new bundle; None where there is none.
        verdict: Verdict of the gate.
        samples: Number of samples that were trained on.
    """

    made: Path | None
    verdict: Verdict
    samples: int


def run_round(old: Personaliser, samples: Sequence[RingSample], training: RoundTraining, rules: Rules) -> RoundResult:
    """Train on most of the samples, and judge on the rest.

    Args:
        old: Model in use; it may run in another thread meanwhile.
        samples: Samples of the ring. Where fewer than half have labels, no labels are used.
        training: How to train.
        rules: Rules of the gate.
    """
    labelled = [sample for sample in samples if sample.label is not None]
    supervised = 0 < len(samples) <= 2 * len(labelled)
    if not supervised:
        return _train_and_judge(old, samples, training, rules, supervised=False)
    learnable = [sample for sample in labelled if training.learns(old.bundle, str(sample.label))]
    identities = {sample.identity for sample in learnable}
    unlearnable = [sample for sample in labelled if sample.identity not in identities]
    result = _train_and_judge(old, learnable, training, rules, supervised=True)
    reason = result.verdict.reason + _left_out(unlearnable)
    return replace(result, verdict=replace(result.verdict, reason=reason))


def _train_and_judge(
    old: Personaliser, used: Sequence[RingSample], training: RoundTraining, rules: Rules, *, supervised: bool
) -> RoundResult:
    held_out = [sample for sample in used if is_held_out(sample.identity)]
    train = [sample for sample in used if not is_held_out(sample.identity)]
    try:
        before = training.global_accuracy(old.bundle)
        reason = _hopeless(train, held_out, rules, supervised=supervised, checked=before is not None)
        if reason is not None:
            return RoundResult(None, refused(reason), len(train))
        labels = [str(sample.label) for sample in train] if supervised else None
        made = training.trainer(old.bundle).train([sample.sample for sample in train], labels)
    except (TunerError, OSError) as error:
        return RoundResult(None, refused(f"the round failed: {error}"), len(train))
    try:
        new = Personaliser(Bundle.read(made))
        after = training.global_accuracy(new.bundle)
        check = None if before is None or after is None else GlobalCheck(before, after)
        verdict = judge(compare_models(old, new, held_out, supervised=supervised), check, rules)
    except (TunerError, OSError) as error:
        verdict = refused(f"the new bundle cannot be judged: {error}")
    return RoundResult(made, verdict, len(train))


def compare_models(
    old: Personaliser, new: Personaliser, held_out: Sequence[RingSample], *, supervised: bool
) -> HoldoutComparison:
    """Predict the held-out samples with both models, and compare the predictions with the truth.

    Args:
        old: Model in use; without labels, its last exit's answers are the truth.
        new: Model that may replace it.
        held_out: At least one sample.
        supervised: Whether the samples' labels are the truth.
    """
    truth = [str(sample.label) for sample in held_out] if supervised else _last_exits(old, held_out)
    separator = LABEL_SEPARATOR if old.bundle.loss == "multi-label" else None
    true_labels = [set(label.split(separator)) if separator else {label} for label in truth]
    before, after = _predictions(old, held_out), _predictions(new, held_out)
    known = np.array([bool(labels & set(old.bundle.labels)) for labels in true_labels])
    return HoldoutComparison(
        _right(before, true_labels),
        _right(after, true_labels),
        known,
        supervised,
        _cost(old, before),
        _cost(new, after),
    )


def is_held_out(identity: str) -> bool:
    """Return whether a sample is never trained on; it depends on the content alone, so as to hold in every round."""
    return int(identity[:8], 16) % HELD_OUT == 0


def _hopeless(
    train: Sequence[RingSample], held_out: Sequence[RingSample], rules: Rules, *, supervised: bool, checked: bool
) -> str | None:
    """Return why training would be in vain; None where it may pay."""
    if len(held_out) < rules.least:
        return f"{len(held_out)} held-out samples are too few to compare the models, the least is {rules.least}"
    classes = {sample.label for sample in train}
    if supervised and len(classes) == 1 and not checked:
        return (
            f"every sample has the label {min(map(str, classes))!r}, and there are no global check samples to notice "
            "forgetting: give samples of two classes"
        )
    return None


def _left_out(unlearnable: Sequence[RingSample]) -> str:
    if not unlearnable:
        return ""
    labels = sorted({str(sample.label) for sample in unlearnable})
    named = ", ".join(map(repr, labels[:SHOWN_LABELS])) + (", …" if len(labels) > SHOWN_LABELS else "")
    return f"; {len(unlearnable)} samples were left out, as the bundle has no label {named}: `tuner apply` adds labels"


def _predictions(model: Personaliser, held_out: Sequence[RingSample]) -> list[Prediction]:
    return [prediction for batch in _batches(held_out) for prediction in model.predict_batch(batch)]


def _right(predictions: Sequence[Prediction], true_labels: Sequence[set[str]]) -> npt.NDArray[np.bool_]:
    pairs = zip(predictions, true_labels, strict=True)
    return np.array([prediction.label in labels for prediction, labels in pairs])


def _cost(model: Personaliser, predictions: Sequence[Prediction]) -> float:
    """Return the mean share of the whole model's FLOPs that predictions took."""
    shares = model.bundle.exits.shares if model.bundle.exits else (1.0,)
    return float(np.mean([shares[prediction.exit] for prediction in predictions]))


def _last_exits(model: Personaliser, held_out: Sequence[RingSample]) -> list[str]:
    last = [model.every_exit(batch)[-1].argmax(axis=1) for batch in _batches(held_out)]
    return [model.bundle.labels[label] for label in np.concatenate(last)]


def _batches(held_out: Sequence[RingSample]) -> list[npt.NDArray[np.generic]]:
    batches = [held_out[first : first + BATCH] for first in range(0, len(held_out), BATCH)]
    return [np.stack([sample.sample for sample in batch]) for batch in batches]
