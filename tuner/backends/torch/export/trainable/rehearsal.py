"""How many global samples a bundle brings along: as many as a round on the user's samples needs not to forget."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Flags
from tuner.backends.torch.export.trainable.features import Features
from tuner.backends.torch.features.selection import Selection
from tuner.bundle.replay import Replay
from tuner.errors import TunerError
from tuner.ort.tail import Tail
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.files import TAIL
from tuner.runtime.train.gate import Rules
from tuner.runtime.train.tail import TailTraining, mixed_rows
from tuner.store.codec import Codec
from tuner.task import Task
from tuner.task.mixing import filling_order

#: Largest size of the samples to train on again.
MOST_BYTES = 64 * 10**6


def tried_round(
    task: Task,
    plan: TrialPlan,
    training: TailTraining,
    weights: Mapping[str, Array],
    codes: tuple[Replay, Replay],
    folder: Path,
) -> Callable[[Replay], float]:
    """Return what tries a round with some replay, and throws it away.

    It gives by how much the round lowers the accuracy on the check samples: 0.01 is a point. It gives zero where the
    round cannot be trained: it then fails on the device too, and says so.

    Args:
        task: What a label is.
        plan: Recipe of the round, and how much its global samples count.
        training: What trains the tail.
        weights: The exported weights of the tail.
        codes: Samples of the user, and those that forgetting is measured on.
        folder: The bundle's, which has the tail.
    """
    local, check = codes

    def right(tail: Tail, weights: Mapping[str, Array]) -> Flags:
        batches = np.array_split(np.arange(len(check)), -(-len(check) // tail.batch_size))
        logits = np.concatenate([tail.logits(check.read(rows), weights) for rows in batches])
        return task.targets.are_right(logits, check.labels)

    def drop(replay: Replay) -> float:
        try:
            trained, _ = training.train(weights, mixed_rows(plan.data, local, replay), plan.recipe)
        except TunerError:
            return 0.0
        tail = Tail(folder / TAIL, training.threads)
        return float(right(tail, weights).mean() - right(tail, trained).mean())

    return drop


def sufficient_replay(
    features: Features, task: Task, mixed: Sequence[Selection], codec: Codec, drop: Callable[[Replay], float]
) -> Replay:
    """Return the trial's own global samples, and others while a round with them forgets more than the gate allows.

    The number doubles, every class alike, until a tried round (`drop`) forgets little enough, there are no more
    samples, or they would take more than `MOST_BYTES`.
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
