"""How many global samples a bundle brings along: as many as a round on the user's samples needs not to forget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Flags
from tuner.backends.torch.export.trainable.features import Features
from tuner.backends.torch.features.selection import Selection, drawn, whole_partition
from tuner.bundle.replay import Replay
from tuner.errors import TunerError
from tuner.ort.tail import Tail
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.runtime.service.watch.gate import Rules
from tuner.runtime.train.files import TAIL
from tuner.runtime.train.tail import TailTraining, mixed_rows
from tuner.store.codec import Codec
from tuner.targets import Targets
from tuner.task import Task
from tuner.task.mixing import filling_order

#: Largest size of the samples to train on again, and how many of the user's a tried round learns from.
MOST_BYTES, LOCAL_SAMPLES = 64 * 10**6, 400


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A round that is tried at export, and thrown away.

    Attributes:
        training: What trains the tail.
        weights: The exported weights of the tail.
        recipe: Recipe of a round.
        data: How much its global samples count.
        local: Samples of the user, as stored features.
        check: Global samples that forgetting is measured on.
        kind: What a sample's label is.
    """

    training: TailTraining
    weights: Mapping[str, Array]
    recipe: RecipePlan
    data: DataPlan
    local: Replay
    check: Replay
    kind: Targets

    def drop(self, replay: Replay, folder: Path) -> float:
        """Return by how much a round with some replay lowers the accuracy on the check samples: 0.01 is a point.

        Args:
            replay: Global samples to train on again.
            folder: The bundle's, which has the tail.

        Returns:
            The drop; zero where the round cannot be trained: it then fails on the device too, and says so.
        """
        rows = mixed_rows(self.data, self.local, replay)
        try:
            weights, _ = self.training.train(self.weights, rows, self.recipe)
        except TunerError:
            return 0.0
        tail = Tail(folder / TAIL, self.training.threads)
        return float(self._right(tail, self.weights).mean() - self._right(tail, weights).mean())

    def _right(self, tail: Tail, weights: Mapping[str, Array]) -> Flags:
        batches = np.array_split(np.arange(len(self.check)), -(-len(self.check) // tail.batch_size))
        logits = np.concatenate([tail.logits(self.check.read(rows), weights) for rows in batches])
        return self.kind.are_right(logits, self.check.labels)


def user_samples(features: Features, task: Task, codec: Codec) -> Replay:
    """Return samples of the user as stored features, for a round that is tried."""
    return features.replay([drawn(whole_partition(task, "local.train"), LOCAL_SAMPLES)], codec)


def sufficient_replay(
    features: Features, task: Task, mixed: Sequence[Selection], codec: Codec, drop: Callable[[Replay], float]
) -> Replay:
    """Return the trial's own global samples, and others while a round with them forgets more than the gate allows.

    The number doubles, every class alike, until a tried round forgets little enough, there are no more samples, or
    they would take more than `MOST_BYTES`.

    Args:
        features: Makes features of samples.
        task: The samples.
        mixed: Global samples that the trial was trained on.
        codec: How features are kept.
        drop: Function that tries a round; see `Rehearsal.drop`.
    """
    replay = features.replay(mixed, codec)
    if task.global_ is None:
        return replay
    samples, room = task.global_.train, MOST_BYTES // codec.record_bytes
    order = filling_order(samples.labels)
    spare = order[~np.isin(order, np.concatenate([order[:0], *(selection.indices for selection in mixed)]))]
    while len(spare) and len(replay) < room and drop(replay) > Rules().global_drop:
        count = min(max(len(replay), len(task.head_rows)), room - len(replay))
        more = features.replay([Selection("global.train", samples, spare[:count])], codec)
        replay, spare = replay.extended(more.codes, more.labels), spare[count:]
    return replay
