"""Users of `benchmarks.papers.exits.persephonee`, and what the frozen backbone makes of all images, in one pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.lib.setup import known_of
from tuner.arrays import Doubles, Floats, Labels, RowNumbers
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.heads import HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.ridge.personal import personal_head
from tuner.runtime.infer.calibration import Costs, exits_taken
from tuner.runtime.train.calibration import FOLDS, calibrate_exits
from tuner.runtime.train.exit_targets import linear_features, regressed
from tuner.targets import SINGLE_LABEL
from tuner.task import Task
from tuner_exits import placed

#: The product's placement, at most six exits, spread over all FLOPs as in the paper.
EXITS = 6
BATCH = 50
LABELLED = HeadsPlan("exits-only", supervised=1.0, distilled=0.0, ridge=300.0, confidence=0.8)
UNLABELLED = HeadsPlan("exits-only", ridge=100.0, temperature=1.0, tolerance=0.1)
#: The arm whose final head is solved for too, on what the given one reads and answers.
PERSONAL = "with labels, personal head"
#: Thresholds by arm. The claims are of the first of each: the fastest of those that lost about a point at 10 classes.
POLICIES: dict[str, tuple[HeadsPlan, ...]] = {
    "offline": (LABELLED,),
    "with labels": (LABELLED, replace(LABELLED, confidence=0.95), replace(LABELLED, confidence=0.5)),
    PERSONAL: (LABELLED,),
    "without labels": (
        UNLABELLED,
        replace(UNLABELLED, tolerance=0.05),
        replace(UNLABELLED, tolerance=0.01, confidence=0.8),
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """What exits read of some images, and what the whole model answers.

    Attributes:
        features: Of each exit, then of the final head, float32 [n, channels].
        logits: Of the final head, float32 [n, 200].
        rows: Class of each, int64 [n].
    """

    features: tuple[Floats, ...]
    logits: Floats
    rows: Labels

    def select(self, indices: RowNumbers) -> "Images":
        """Return some of them."""
        return Images(tuple(own[indices] for own in self.features), self.logits[indices], self.rows[indices])

    def among(self, classes: RowNumbers) -> "Images":
        """Return them with the final head's rows of some classes alone, which then count from 0."""
        return Images(self.features, self.logits[:, classes], np.searchsorted(classes, self.rows))


@dataclass(frozen=True, slots=True, eq=False)
class User:
    """A user and her images.

    Attributes:
        seed: Her number.
        classes: The classes that the task has, ascending.
        popularity: How often she meets each, float64 [classes]; sums to 1.
        images: Number of each of her images among the training images, int64 [n]; one that returns is met again.
        flipped: Whether she meets it mirrored, bool [n].
    """

    seed: int
    classes: RowNumbers
    popularity: Doubles
    images: RowNumbers
    flipped: npt.NDArray[np.bool_]


def known_task(given: Task) -> Task:
    """Return the task of the model's 200 known classes, with the global images as its own."""
    known = len(given.head_rows)
    return replace(given, labels=given.labels[:known], local=known_of(given), global_=None, local_labels=())


def taps(model: ModelInfo) -> list[int]:
    """Return the blocks that exits are before."""
    return [one.block for one in placed(model, EXITS, 0)]


def store_features(task: Task, loaded: OpenModel, path: Path) -> None:
    """Run all images through the backbone once, those of training also mirrored."""
    if loaded.chain is None:
        raise ValueError("MobileNetV2 can be cut")
    blocks = [*taps(loaded.info), loaded.info.num_blocks - 1, loaded.info.num_blocks]
    model = loaded.chain.outputs([loaded.chain.split_position(block) for block in blocks]).eval()
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for name, samples in (("train", task.local.train), ("val", task.local.val)):
        parts: dict[str, list[Floats]] = {}
        for begin in range(0, len(samples), BATCH):
            pixels = torch.from_numpy(task.batch(samples, range(begin, min(begin + BATCH, len(samples)))))
            views = {name: pixels} | ({f"{name}_flipped": pixels.flip(3)} if name == "train" else {})
            for view, batch in views.items():
                with torch.inference_mode():
                    found = [value.numpy() for value in model(batch)]
                for at, value in enumerate(found):
                    own = value if at == len(blocks) - 1 else linear_features(value)
                    parts.setdefault(f"{view}_{at}", []).append(own.astype(np.float32))
        arrays |= {key: np.concatenate(own) for key, own in parts.items()}
        arrays[f"{name}_rows"] = samples.labels
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own options


@cache
def stored(path: Path) -> dict[str, Images]:
    """Return the stored features of ``train``, ``train_flipped`` and ``val``."""
    arrays, found = np.load(path), {}
    for view in ("train", "train_flipped", "val"):
        count = sum(name.rpartition("_")[0] == view and name[-1].isdigit() for name in arrays)
        values = [arrays[f"{view}_{at}"] for at in range(count)]
        found[view] = Images(tuple(values[:-1]), values[-1], arrays[f"{view.partition('_')[0]}_rows"])
    return found


def offline_images(rows: Labels, classes: Sequence[int] | RowNumbers, share: float = 0.5) -> RowNumbers:
    """Return the numbers of the images of some classes that the offline stage learns from: the first of each."""
    own = [np.flatnonzero(rows == one) for one in classes]
    return np.concatenate([one[: round(share * len(one))] for one in own])


def met(rows: Labels, count: int, samples: int, seed: int) -> User:
    """Return a user: popularity p ∝ exp(−(rank − μ)² / 2σ²), σ = K/10, of K random classes in a random order.

    Each of her samples is an image of a class drawn by popularity, from the half that the offline stage has not seen.
    These are 20 a class, so images return: every second time mirrored, the only further view of an image.

    Args:
        rows: Class of each training image.
        count: K.
        samples: How many she has.
        seed: Her number; the same user has the same classes with any number of samples.
    """
    generator = np.random.default_rng((7, seed, count))
    classes = np.sort(generator.permutation(int(rows.max()) + 1)[:count])
    rank = generator.permutation(count)
    popularity = np.exp(-((rank - count / 2) ** 2) / (2 * (count / 10) ** 2))
    popularity /= popularity.sum()
    pools = [np.setdiff1d(np.flatnonzero(rows == one), offline_images(rows, [one])) for one in classes]
    images = np.array([generator.choice(pools[one]) for one in generator.choice(count, samples, p=popularity)])
    before = [int((images[:at] == image).sum()) for at, image in enumerate(images)]
    return User(seed, classes, popularity, images, np.array(before) % 2 == 1)


def weights(user: User, labels: Labels) -> Doubles:
    """Return what each validation image counts: its class's popularity, shared by the class's images; sums to 1."""
    counts = np.bincount(labels, minlength=len(user.classes))
    share: Doubles = user.popularity[labels] / counts[labels]
    share /= share.sum()
    return share


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
            fitted, scored = solved(heads, own, folds_of(user.images), known, val, personal=arm == PERSONAL)
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
    heads: HeadsPlan, own: Images, folds: RowNumbers, known: Images | None, val: Images, *, personal: bool = False
) -> tuple[Answered, Answered]:
    """Solve for all exits; return what each answers out of fold to the user's images, and to the validation images.

    Args:
        heads: What the exits learn.
        own: The images that set thresholds and prior.
        folds: Fold of each.
        known: Global images that are learned from, too; None for no others.
        val: The validation images.
        personal: Whether the final head is solved for too.
    """
    parts = [own] if known is None else [own, known]
    answers = np.concatenate([part.logits for part in parts])
    labels = np.concatenate([part.rows for part in parts])
    targets, truth = regressed(heads, answers, labels, kind=SINGLE_LABEL)
    unseen, scored = ([], []) if personal else ([own.logits], [val.logits])
    for at in reversed(range(len(own.features) - 1 + personal)):
        final = at == len(own.features) - 1
        read = [np.hstack([part.features[at]] + [part.logits] * final) for part in (*parts, val)]
        features = np.concatenate(read[:-1])
        head = personal_head(features, targets, truth, np.arange(len(own.rows)), folds, heads.ridge)
        unseen.insert(0, head.unseen.astype(np.float32))
        scored.insert(0, head.head.scores(read[-1]).astype(np.float32))
    return Answered(np.stack(unseen), own.rows), Answered(np.stack(scored), val.rows)


def judged(heads: HeadsPlan, fitted: Answered, scored: Answered, user: User, flops: Costs) -> Policy:
    """Set thresholds on a user's images, by labels or by agreement with the final head; score the validation images."""
    labelled = heads.supervised > 0
    truth = fitted.labels if labelled else fitted.logits[-1].argmax(axis=-1)
    calibration = calibrate_exits(
        fitted.logits, truth, heads, flops, kind=SINGLE_LABEL, prune=True, labelled=labelled, out_of_fold=True
    )
    kept = [*calibration.kept, len(fitted.logits) - 1]
    logits = scored.logits[kept]
    exits = exits_taken(SINGLE_LABEL.confidences(logits, calibration.temperatures), calibration.thresholds)
    right = SINGLE_LABEL.correctness(logits, scored.labels)[exits, np.arange(len(exits))]
    share: Doubles = weights(user, scored.labels)
    shares = np.bincount(np.array(kept)[exits], share, minlength=len(fitted.logits))
    return Policy(float(right @ share), tuple(shares.tolist()), calibration.kept)
