"""One round: train on the ring's samples, and let the gate judge the new bundle, which is not put in place here.

Every sample trains, and every new one judges: the samples are divided into folds, and each fold is answered by a model
that was trained on the others. The model that is accepted was trained on all of them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.arrays import Flags
from tuner.bundle.format import Bundle
from tuner.bundle.info import FOLDS
from tuner.bundle.rounds import MADE, device_folder
from tuner.commands.bundles.rings import discard_made
from tuner.errors import TunerError
from tuner.runtime.infer.personaliser import Personaliser
from tuner.runtime.infer.prediction import Prediction
from tuner.runtime.train.base import Answer, DeviceTrainer
from tuner.runtime.train.exits import ExitsTrainer
from tuner.runtime.train.gate import (
    Check,
    Comparison,
    Rules,
    Verdict,
    earlier_checks,
    judge_checks,
    judge_samples,
    refused,
    too_few,
)
from tuner.runtime.train.solved import SolvingTrainer
from tuner.runtime.train.tail import Trainer
from tuner.targets import SINGLE_LABEL, Targets
from tuner.targets.base import SEPARATOR
from tuner_watch.ring import RingSample

BATCH = 32
SHOWN_LABELS = 3


@dataclass(frozen=True, slots=True)
class RoundTraining:
    """What a round needs in addition to the samples.

    Attributes:
        trainer: Function that makes a trainer for the bundle in use.
        global_right: Function that returns whether each of a bundle's global check samples is answered right; None
            where it has none.
        learns: Function that returns whether a bundle can be trained on a label; samples with other labels are left
            out, which the reason says.
        exported: Folder of the bundle as it was exported; None where it is the one in use.
        folds: Number of folds of the samples that judge.
    """

    trainer: Callable[[Bundle], DeviceTrainer]
    global_right: Callable[[Bundle], Flags | None] = lambda _: None
    learns: Callable[[Bundle, str], bool] = lambda _bundle, _label: True
    exported: Path | None = None
    folds: int = FOLDS


def local_training(folder: Path, threads: int | None = None) -> RoundTraining | None:
    """Return how rounds of an exported bundle train; None where it was exported without ``--trainable``.

    Raises:
        BundleError: It is not a bundle.
    """
    info = Bundle.read(folder).info.train
    if info is None:
        return None
    return RoundTraining(
        trainer=lambda bundle: trainer_of(bundle, threads),
        global_right=lambda bundle: trainer_of(bundle, threads).right_before,
        learns=has_label,
        exported=folder,
        folds=info.folds or FOLDS,
    )


def trainer_of(bundle: Bundle, threads: int | None = None) -> DeviceTrainer:
    """Return the trainer of a bundle: of its exits where it has some, of a head that is solved for, else of its tail.

    Raises:
        BundleError: It was exported without ``--trainable``.
    """
    if bundle.exits:
        return ExitsTrainer(bundle, threads)
    is_solved = bundle.info.train is not None and bundle.info.train.is_solved
    return SolvingTrainer(bundle, threads) if is_solved else Trainer(bundle, threads)


def has_label(bundle: Bundle, label: str) -> bool:
    """Return whether a bundle can be trained on a sample's label, labels or targets."""
    return bundle.targets.has(label, bundle.labels)


def known_label(label: str | None, bundle: Bundle) -> str | None:
    """Return a sample's label, or several in one text, by the names that a bundle knows."""
    if label is None:
        return None
    given = bundle.targets.parts(label)
    return SEPARATOR.join(dict.fromkeys(one for name in given for one in bundle.info.labels_of(name)))


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Result of a round.

    Attributes:
        made: Folder of the new bundle; None where there is none.
        verdict: Verdict of the gate.
        used: Samples that were trained on.
    """

    made: Path | None
    verdict: Verdict
    used: Sequence[RingSample]


def run_round(
    old: Personaliser,
    samples: Sequence[RingSample],
    training: RoundTraining,
    rules: Rules,
    learned: frozenset[str] = frozenset(),
) -> RoundResult:
    """Train on the samples, and judge by those that the model in use was not trained on.

    Args:
        old: Model in use; it may run in another thread meanwhile.
        samples: Samples of the ring. Where fewer than half have labels, no labels are used.
        training: How to train.
        rules: Rules of the gate.
        learned: Identities of the samples that the model in use was trained on: its answers to them say nothing.
    """
    labelled = [sample for sample in samples if sample.label is not None]
    supervised = 0 < len(samples) <= 2 * len(labelled)
    if not supervised:
        return _train_and_judge(_Round(old, samples, learned, training, rules, supervised))
    unlearnable = [sample for sample in labelled if not training.learns(old.bundle, str(sample.label))]
    left_out = {sample.identity for sample in unlearnable}
    used = [sample for sample in labelled if sample.identity not in left_out]
    result = _train_and_judge(_Round(old, used, learned, training, rules, supervised))
    reason = result.verdict.reason + _left_out(unlearnable)
    return replace(result, verdict=replace(result.verdict, reason=reason))


def folds_of(
    samples: Sequence[RingSample], rows: Sequence[int], folds: int, targets: Targets = SINGLE_LABEL
) -> list[list[int]]:
    """Divide samples into folds in which every label is as frequent as in all; it depends on their content alone.

    What was cut from one recording is alike, and in one fold, unless it is the only recording of its label.

    Args:
        samples: All samples.
        rows: Places of those to divide.
        folds: Number of folds; fewer where there are fewer samples or recordings to divide.
        targets: What a label is.
    """
    labels = [targets.stratum(sample.label) for sample in samples]
    recordings: dict[str | None, set[str]] = {}
    for sample, label in zip(samples, labels, strict=True):
        recordings.setdefault(label, set()).add(sample.recording or sample.identity)
    together: dict[tuple[str, str], list[int]] = {}
    for row in sorted(rows, key=lambda row: samples[row].identity):
        sample, label = samples[row], labels[row]
        mark = sample.recording if len(recordings[label]) > 1 else ""
        together.setdefault((label or "", mark or sample.identity), []).append(row)
    ordered = [together[key] for key in sorted(together)]
    return [[row for part in ordered[first::folds] for row in part] for first in range(min(folds, len(ordered)))]


@dataclass(frozen=True, slots=True)
class _Round:
    """A round that runs; see `run_round`."""

    old: Personaliser
    used: Sequence[RingSample]
    learned: frozenset[str]
    training: RoundTraining
    rules: Rules
    supervised: bool


def _train_and_judge(this: _Round) -> RoundResult:
    training, rules, bundle = this.training, this.rules, this.old.bundle
    fresh = [row for row, sample in enumerate(this.used) if sample.identity not in this.learned]
    try:
        before, trainer = training.global_right(bundle), training.trainer(bundle)
        reason = _hopeless(this, len(fresh), checked=before is not None or trainer.earlier > 0)
        if reason is not None:
            return RoundResult(None, refused(reason), this.used)
        labels = [str(sample.label) for sample in this.used]
        given = [bundle.targets.parts(label) for label in labels]
        trainer.add([sample.sample for sample in this.used], given if this.supervised else None)
        verdict = judge_samples(compare_models(this, trainer, fresh), rules)
        if not verdict.accepted and not (verdict.is_open and before is not None):
            return RoundResult(None, verdict, this.used)
        trainer.train()
        earlier = trainer.earlier_right()
        made = device_folder(training.exported or bundle.folder) / MADE
        discard_made(training.exported or bundle.folder)  # left by a round that failed
        trainer.save(made)
    except (TunerError, OSError) as error:
        return RoundResult(None, refused(f"the round failed: {error}"), this.used)
    try:
        after = training.global_right(Bundle.read(made))
        checks = list[Check]()
        if before is not None and after is not None:
            checks.append(Check(before, after, bundle.targets.right_share, _of_export(training, bundle, before)))
        if earlier is not None:  # what labels that did not come lose, the gain of the others may hide
            checks += earlier_checks(*earlier, bundle.targets.earlier_share)
        verdict = judge_checks(verdict, checks, rules)
    except (TunerError, OSError) as error:
        verdict = refused(f"the new bundle cannot be judged: {error}")
    return RoundResult(made, verdict, this.used)


def compare_models(this: _Round, trainer: DeviceTrainer, fresh: Sequence[int]) -> Comparison:
    """Compare the old model's answers with those of models that were trained without the samples they answer.

    After each fold it is asked whether there is time for another: as much as the folds took in the mean, twice, as the
    accepted model is trained too. Where there is none, the folds that were answered judge, once they are enough.
    Without labels, the last exit's answers of the old model are the truth. `fresh` are places of those that may judge.
    """
    began, answers = time.monotonic(), dict[int, Answer]()
    folds = folds_of(this.used, fresh, this.training.folds, this.old.bundle.targets)
    for done, fold in enumerate(folds, 1):
        answers |= zip(fold, trainer.answers_without(fold, [this.used[row].sample for row in fold]), strict=True)
        seconds = time.monotonic() - began
        if len(answers) >= this.rules.least and seconds * (1 + 2 / done) > this.rules.seconds:
            break
    judging = [this.used[row] for row in answers]
    old = this.old
    truth = [str(sample.label) for sample in judging] if this.supervised else _last_exits(old, judging)
    before = [prediction for batch in _batches(judging) for prediction in old.predict_batch(batch)]
    after = list(answers.values())
    known = np.array([old.bundle.targets.knows(label, old.bundle.labels) for label in truth])
    return Comparison(
        _right(before, truth, old.bundle),
        _right(after, truth, old.bundle),
        known,
        this.supervised,
        _cost(old, before),
        _cost(old, after),
        done,
        old.bundle.targets.right,
        adds=old.bundle.info.train is not None and old.bundle.info.train.is_solved,
    )


def _hopeless(this: _Round, fresh: int, *, checked: bool) -> str | None:
    """Return why training would be in vain; None where it may pay."""
    if fresh < this.rules.least:
        return too_few(fresh, this.rules)
    labels = {this.old.bundle.targets.stratum(sample.label) for sample in this.used}
    if this.supervised and len(labels) == 1 and None not in labels and not checked:
        return (
            f"every sample has the label {min(map(str, labels))!r}, and there are no global check samples, and no "
            "earlier ones of the user, to notice forgetting: give samples of two classes"
        )
    return None


def _of_export(training: RoundTraining, bundle: Bundle, before: Flags) -> Flags:
    """Return whether the exported bundle answers each global check sample right; `before` are the answers in use."""
    if training.exported is None or training.exported == bundle.folder:
        return before
    exported = training.global_right(Bundle.read(training.exported))
    return before if exported is None else exported


def _left_out(unlearnable: Sequence[RingSample]) -> str:
    if not unlearnable:
        return ""
    labels = sorted({str(sample.label) for sample in unlearnable})
    named = ", ".join(map(repr, labels[:SHOWN_LABELS])) + (", …" if len(labels) > SHOWN_LABELS else "")
    return (
        f"; {len(unlearnable)} samples were left out, as the bundle has no label {named}: `tuner labels add` adds one"
    )


def _right(answers: Sequence[Prediction | Answer], truth: Sequence[str], bundle: Bundle) -> npt.NDArray[np.bool_]:
    right, names = bundle.targets.is_right, bundle.labels
    return np.array([right(answer.label, label, names) for answer, label in zip(answers, truth, strict=True)])


def _cost(model: Personaliser, answers: Sequence[Prediction | Answer]) -> float:
    """Return the mean share of the whole model's FLOPs that answers took."""
    shares = model.bundle.exits.shares if model.bundle.exits else (1.0,)
    return float(np.mean([shares[answer.exit] for answer in answers]))


def _last_exits(model: Personaliser, samples: Sequence[RingSample]) -> list[str]:
    last = np.concatenate([model.every_exit(batch)[-1] for batch in _batches(samples)])
    return [model.bundle.targets.best(row, model.bundle.labels)[0] for row in last]


def _batches(samples: Sequence[RingSample]) -> list[npt.NDArray[np.generic]]:
    batches = [samples[first : first + BATCH] for first in range(0, len(samples), BATCH)]
    return [np.stack([sample.sample for sample in batch]) for batch in batches]
