"""Exits in closed form of one user of `persephonee`: solved, calibrated and scored by the product's code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.papers.exits.users import Images, User, met, offline_images, stored, weights
from tuner.arrays import Doubles, Floats, Labels, RowNumbers
from tuner.plan.heads import HeadsPlan
from tuner.ridge.personal import personal_head
from tuner.runtime.infer.calibration import Costs, exits_taken
from tuner.runtime.train.calibration import FOLDS, calibrate_exits
from tuner.runtime.train.exit_targets import regressed
from tuner.targets import SINGLE_LABEL

LABELLED = HeadsPlan("exits-only", supervised=1.0, distilled=0.0, ridge=300.0, confidence=0.8)
UNLABELLED = HeadsPlan("exits-only", ridge=100.0, temperature=1.0, tolerance=0.1)
#: Thresholds by arm. The claims are of the first of each: the fastest of those that lost about a point at 10 classes.
POLICIES: dict[str, tuple[HeadsPlan, ...]] = {
    "offline": (LABELLED,),
    "with labels": (LABELLED, replace(LABELLED, confidence=0.95), replace(LABELLED, confidence=0.5)),
    "without labels": (
        UNLABELLED,
        replace(UNLABELLED, tolerance=0.05),
        replace(UNLABELLED, tolerance=0.01, confidence=0.8),
    ),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """When a user's images leave, and what that gives on the validation images.

    Attributes:
        accuracy: Of the answers that images leave with.
        shares: Of the images that leave at each exit; the last is the final head's.
        kept: Exits that calibration has kept; the others are not in the user's chain.
    """

    accuracy: float
    shares: tuple[float, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one arm comes to for one user.

    Attributes:
        images: Number of different images among her samples.
        exits: Accuracy of each exit on the validation images; the last is the final head's.
        policies: By the arm's settings.
    """

    images: int
    exits: tuple[float, ...]
    policies: tuple[Policy, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """Logits of all exits, float32 [exits + 1, n, classes], and the labels of these images."""

    logits: Floats
    labels: Labels


def lived(path: Path, classes: int, samples: int, seed: int, flops: Costs) -> dict[str, Outcome]:
    """Return what every arm comes to for one user: exits of the offline stage, then solved again with her images.

    A ridge head depends on sums alone, so solving again from the global and her own images is the update of the offline
    solution: nothing of that is lost.
    """
    images = stored(path)
    user = met(images["train"].rows, classes, samples, seed)
    own = views(images, user).among(user.classes)
    known = images["train"].select(offline_images(images["train"].rows, user.classes)).among(user.classes)
    val = images["val"]
    val = val.select(np.flatnonzero(np.isin(val.rows, user.classes))).among(user.classes)
    found = {}
    for arm, policies in POLICIES.items():
        heads = policies[0]
        if arm == "offline":
            fitted, scored = solved(heads, known, folds_of(np.arange(len(known.rows))), None, val)
        else:
            fitted, scored = solved(heads, own, folds_of(user.images), known, val)
        kinds = tuple(judged(one, fitted, scored, user, flops) for one in policies)
        right = SINGLE_LABEL.correctness(scored.logits, scored.labels) @ weights(user, scored.labels)
        found[arm] = Outcome(len(np.unique(user.images)), tuple(right.tolist()), kinds)
    return found


def views(images: Mapping[str, Images], user: User) -> Images:
    """Return a user's images, mirrored where she meets them so."""
    plain, flipped = (images[name].select(user.images) for name in ("train", "train_flipped"))
    pairs = zip((*plain.features, plain.logits), (*flipped.features, flipped.logits), strict=True)
    *features, logits = (np.where(user.flipped[:, None], second, first) for first, second in pairs)
    return Images(tuple(features), logits, plain.rows)


def folds_of(images: RowNumbers) -> RowNumbers:
    """Return a fold for each sample; all views of an image are in one."""
    return np.random.default_rng(0).integers(0, FOLDS, int(images.max()) + 1)[images]


def solved(
    heads: HeadsPlan, own: Images, folds: RowNumbers, known: Images | None, val: Images
) -> tuple[Answered, Answered]:
    """Solve for all exits; return what each answers out of fold to the user's images, and to the validation images.

    Args:
        heads: What the exits learn.
        own: The images that set thresholds and prior.
        folds: Fold of each.
        known: Global images that are learned from, too; None for no others.
        val: The validation images.
    """
    parts = [own] if known is None else [own, known]
    answers = np.concatenate([part.logits for part in parts])
    labels = np.concatenate([part.rows for part in parts])
    targets, truth = regressed(heads, answers, labels, kind=SINGLE_LABEL)
    unseen, scored = [own.logits], [val.logits]
    for at in reversed(range(len(own.features))):
        features = np.concatenate([part.features[at] for part in parts])
        head = personal_head(features, targets, truth, np.arange(len(own.rows)), folds, heads.ridge)
        unseen.insert(0, head.unseen.astype(np.float32))
        scored.insert(0, head.head.scores(val.features[at]).astype(np.float32))
    return Answered(np.stack(unseen), own.rows), Answered(np.stack(scored), val.rows)


def judged(
    heads: HeadsPlan, fitted: Answered, scored: Answered, user: User, flops: Costs, *, out_of_fold: bool = True
) -> Policy:
    """Set thresholds on a user's images, by labels or by agreement with the final head; score the validation images."""
    labelled = heads.supervised > 0
    truth = fitted.labels if labelled else fitted.logits[-1].argmax(axis=-1)
    calibration = calibrate_exits(
        fitted.logits, truth, heads, flops, kind=SINGLE_LABEL, prune=True, labelled=labelled, out_of_fold=out_of_fold
    )
    kept = [*calibration.kept, len(fitted.logits) - 1]
    logits = scored.logits[kept]
    exits = exits_taken(SINGLE_LABEL.confidences(logits, calibration.temperatures), calibration.thresholds)
    right = SINGLE_LABEL.correctness(logits, scored.labels)[exits, np.arange(len(exits))]
    share: Doubles = weights(user, scored.labels)
    shares = np.bincount(np.array(kept)[exits], share, minlength=len(fitted.logits))
    return Policy(float(right @ share), tuple(shares.tolist()), calibration.kept)
