"""Users of `benchmarks.papers.exits.persephonee`, and what the frozen backbone makes of all images, in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from tuner.arrays import Doubles, Floats, Labels, RowNumbers
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.info import ModelInfo
from tuner.runtime.train.exit_targets import linear_features
from tuner.task import Domain, Samples, Task
from tuner_exits import placed

#: The product's placement, at most six exits, spread over all FLOPs as in the paper.
EXITS = 6
BATCH = 50


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """What exits read of some images, and what the whole model answers.

    Attributes:
        features: Of each exit, float32 [n, channels].
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
    if given.global_ is None:
        raise ValueError("the clothing task has global data")
    known = len(given.head_rows)
    return replace(given, labels=given.labels[:known], local=given.global_, global_=None, local_labels=())


def taps(model: ModelInfo) -> list[int]:
    """Return the blocks that exits are before."""
    return [one.block for one in placed(model, EXITS, 0)]


def store_features(task: Task, loaded: OpenModel, path: Path) -> None:
    """Run all images through the backbone once, those of training also mirrored."""
    if loaded.chain is None:
        raise ValueError("MobileNetV2 can be cut")
    blocks = [*taps(loaded.info), loaded.info.num_blocks]
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


class Met(Samples):
    """A user's images as samples: repeated and mirrored as she meets them."""

    def __init__(self, samples: Samples, user: User) -> None:
        self._samples, self._user = samples, user
        self.labels = np.searchsorted(user.classes, samples.labels[user.images])

    def __len__(self) -> int:
        return len(self._user.images)

    def load(self, index: int) -> npt.NDArray[np.generic]:
        """Return an image, [3, height, width]."""
        pixels = self._samples.load(int(self._user.images[index]))
        return np.ascontiguousarray(pixels[..., ::-1]) if self._user.flipped[index] else pixels

    def sample_id(self, index: int) -> str:
        """Return the image's, with its digits in reverse order where it is mirrored."""
        own = self._samples.sample_id(int(self._user.images[index]))
        return own[::-1] if self._user.flipped[index] else own

    def name(self, index: int) -> str:
        """Return the image's file."""
        return self._samples.name(int(self._user.images[index]))


class Classes(Samples):
    """The images of some classes, which then count from 0."""

    def __init__(self, samples: Samples, classes: RowNumbers) -> None:
        self._samples, self._indices = samples, np.flatnonzero(np.isin(samples.labels, classes))
        self.labels = np.searchsorted(classes, samples.labels[self._indices])

    def __len__(self) -> int:
        return len(self._indices)

    def load(self, index: int) -> npt.NDArray[np.generic]:
        """Return an image."""
        return self._samples.load(int(self._indices[index]))

    def sample_id(self, index: int) -> str:
        """Return the image's hash."""
        return self._samples.sample_id(int(self._indices[index]))

    def name(self, index: int) -> str:
        """Return the image's file."""
        return self._samples.name(int(self._indices[index]))


def task_of(task: Task, user: User) -> Task:
    """Return the user's task: the model's head has her classes' rows alone."""
    rows, names = tuple(task.head_rows[one] for one in user.classes), tuple(task.labels[one] for one in user.classes)
    domain = Domain(Met(task.local.train, user), Classes(task.local.val, user.classes))
    return replace(task, name=f"user {user.seed}", labels=names, head_rows=rows, local=domain,
                   local_labels=tuple(range(len(rows))))  # fmt: skip


def weights(user: User, labels: Labels) -> Doubles:
    """Return what each validation image counts: its class's popularity, shared by the class's images; sums to 1."""
    counts = np.bincount(labels, minlength=len(user.classes))
    share: Doubles = user.popularity[labels] / counts[labels]
    share /= share.sum()
    return share
