"""One round: train on the samples kept, and let the gate judge what comes of it. Nothing is put in place here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tuner.errors import TunerError
from tuner.runtime.bundle import Bundle
from tuner.runtime.gate import GlobalCheck, Held, Rules, Verdict, judge, refused
from tuner.runtime.personaliser import Personaliser, Prediction
from tuner.runtime.ring import Kept

BATCH = 32
LABEL_SEPARATOR = "|"  # between the labels of a sample that has several
SHOWN_LABELS = 3
HELD_OUT = 5  # one sample in so many is never trained on: a fifth is for judging


class Trains(Protocol):
    """Trains on this device."""

    def train(self, samples: Sequence[npt.NDArray[np.generic]], labels: Sequence[str] | None) -> Path:
        """Train from a bundle's weights and return a new bundle's folder, which is the caller's to remove.

        Args:
            samples: As the task's decoding gives them.
            labels: One each, or None where the samples have none.
        """
        ...


@dataclass(frozen=True, slots=True)
class Training:
    """What a round needs beside the samples.

    Attributes:
        trainer: Makes a trainer for the bundle in use.
        global_accuracy: Of a bundle on its global check records, in [0, 1]; None where it has none.
        learns: Whether a bundle can be trained on a label; samples with others are left out, and the reason says so.
    """

    trainer: Callable[[Bundle], Trains]
    global_accuracy: Callable[[Bundle], float | None] = lambda _: None
    learns: Callable[[Bundle, str], bool] = lambda _bundle, _label: True


@dataclass(frozen=True, slots=True)
class Ended:
    """What a round came to.

    Attributes:
        made: The new bundle's folder; None where there is none.
        verdict: The gate's.
        samples: Trained on.
    """

    made: Path | None
    verdict: Verdict
    samples: int


def run_round(old: Personaliser, kept: Sequence[Kept], training: Training, rules: Rules) -> Ended:
    """Train on most of the samples, and judge on the rest.

    Args:
        old: The model in use; a copy that nobody else runs meanwhile is not needed.
        kept: The ring's samples. Where fewer than half have labels, none are used.
        training: How to train.
        rules: The gate's.
    """
    labelled = [one for one in kept if one.label is not None]
    supervised = 0 < len(kept) <= 2 * len(labelled)
    strange = [one for one in labelled if not training.learns(old.bundle, str(one.label))] if supervised else []
    left = {one.identity for one in strange}
    used = [one for one in labelled if one.identity not in left] if supervised else kept
    ended = _carried_out(old, used, training, rules, supervised=supervised)
    return replace(ended, verdict=replace(ended.verdict, reason=ended.verdict.reason + _left_out(strange)))


def _carried_out(
    old: Personaliser, used: Sequence[Kept], training: Training, rules: Rules, *, supervised: bool
) -> Ended:
    held = [one for one in used if is_held_out(one.identity)]
    train = [one for one in used if not is_held_out(one.identity)]
    try:
        before = training.global_accuracy(old.bundle)
        reason = _hopeless(train, held, rules, supervised=supervised, checked=before is not None)
        if reason is not None:
            return Ended(None, refused(reason), len(train))
        labels = [str(one.label) for one in train] if supervised else None
        made = training.trainer(old.bundle).train([one.sample for one in train], labels)
    except (TunerError, OSError) as error:
        return Ended(None, refused(f"the round failed: {error}"), len(train))
    try:
        new = Personaliser(Bundle.read(made))
        after = training.global_accuracy(new.bundle)
        check = None if before is None or after is None else GlobalCheck(before, after)
        verdict = judge(compared(old, new, held, supervised=supervised), check, rules)
    except (TunerError, OSError) as error:
        verdict = refused(f"the new bundle cannot be judged: {error}")
    return Ended(made, verdict, len(train))


def compared(old: Personaliser, new: Personaliser, held: Sequence[Kept], *, supervised: bool) -> Held:
    """Answer the held-out samples with both models.

    Args:
        old: The model in use; without labels its last exit is what both are held against.
        new: The one that might follow it.
        held: At least one sample.
        supervised: Whether to go by the samples' labels.
    """
    truth = [str(one.label) for one in held] if supervised else _last_exits(old, held)
    separator = LABEL_SEPARATOR if old.bundle.loss == "multi-label" else None
    wanted = [set(one.split(separator)) if separator else {one} for one in truth]
    answers = [_answers(model, held) for model in (old, new)]
    before, after = (np.array([s.label in one for s, one in zip(own, wanted, strict=True)]) for own in answers)
    known = np.array([bool(one & set(old.bundle.labels)) for one in wanted])
    costs = [_cost(model, own) for model, own in zip((old, new), answers, strict=True)]
    return Held(before, after, known, supervised, *costs)


def is_held_out(identity: str) -> bool:
    """Say whether a sample is for judging only; follows from its content, so that it is so in every round."""
    return int(identity[:8], 16) % HELD_OUT == 0


def _hopeless(
    train: Sequence[Kept], held: Sequence[Kept], rules: Rules, *, supervised: bool, checked: bool
) -> str | None:
    """Say why training would be in vain."""
    if len(held) < rules.least:
        return f"{len(held)} held-out samples are too few to judge by, the least is {rules.least}"
    classes = {one.label for one in train}
    if supervised and len(classes) == 1 and not checked:
        return (
            f"every sample is {min(map(str, classes))!r}, and there are no global check records: two classes are wanted"
        )
    return None


def _left_out(strange: Sequence[Kept]) -> str:
    if not strange:
        return ""
    labels = sorted({str(one.label) for one in strange})
    named = ", ".join(map(repr, labels[:SHOWN_LABELS])) + (", …" if len(labels) > SHOWN_LABELS else "")
    return f"; {len(strange)} samples were left out, as the bundle has no label {named}: `tuner apply` adds labels"


def _answers(model: Personaliser, held: Sequence[Kept]) -> list[Prediction]:
    return [one for batch in _batches(held) for one in model.predict_batch(batch)]


def _cost(model: Personaliser, answers: Sequence[Prediction]) -> float:
    """Return the mean share of the whole model's FLOPs that answers took."""
    shares = model.bundle.exits.shares if model.bundle.exits else (1.0,)
    return float(np.mean([shares[one.exit] for one in answers]))


def _last_exits(model: Personaliser, held: Sequence[Kept]) -> list[str]:
    last = [model.every_exit(batch)[-1].argmax(axis=1) for batch in _batches(held)]
    return [model.bundle.labels[label] for label in np.concatenate(last)]


def _batches(held: Sequence[Kept]) -> list[npt.NDArray[np.generic]]:
    return [np.stack([one.sample for one in held[first : first + BATCH]]) for first in range(0, len(held), BATCH)]
