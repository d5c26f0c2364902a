"""Features that a bundle brings along, made by its own frozen blocks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Floats
from tuner.backends.torch.features.access import VALIDATION_BITS
from tuner.backends.torch.features.selection import Selection, drawn, training_selections, whole_partition
from tuner.bundle.info import Section, TrainInfo, TrainKind
from tuner.bundle.replay import Replay, every_class_alike
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS
from tuner.runtime.train.base import mark_of
from tuner.runtime.train.files import CHECK, MOST_OWN, REPLAY
from tuner.store.codec import Codec, calibrate, has_own_scales
from tuner.task import Task
from tuner.training.schedule import batches_of

CALIBRATION_SAMPLES = 256  # of each domain
CHECK_SAMPLES = 500
BATCH = 32
CLIPPED = 0.01


class Features:
    """What the exported model's frozen blocks (`carry`) make of a task's samples."""

    def __init__(self, task: Task, plan: TrialPlan, carry: Callable[[Floats], Floats]) -> None:
        self._task, self._plan, self._carry = task, plan, carry

    def _batches(self, selection: Selection) -> Iterator[Floats]:
        for indices in batches_of(selection.indices, BATCH):
            yield self._carry(self._task.batch(selection.samples, indices))

    def of(self, selection: Selection) -> Floats:
        """Return float32 [n, *shape]."""
        return np.concatenate(list(self._batches(selection)))

    def codec(self) -> Codec:
        """Return how features are kept: in the plan's width, in 8 bits where the plan keeps none.

        The scales are per channel, of local and global training samples as in a study. Inputs are not clipped: 8 bits
        hold the pixels of an image as they are.
        """
        bits = self._plan.cache.bits if self._plan.cached else CODED_BITS
        selections = [drawn(whole_partition(self._task, "local.train"), CALIBRATION_SAMPLES)]
        if self._task.global_ is not None:
            selections.append(drawn(whole_partition(self._task, "global.train"), CALIBRATION_SAMPLES))
        maps = np.concatenate([batch for selection in selections for batch in self._batches(selection)])
        low, high = calibrate(maps, CLIPPED if self._plan.split else 0.0) if bits < VALIDATION_BITS else (None, None)
        return Codec(bits, maps.shape[1:], low, high, has_own_scales(bits, maps.shape[1:]))

    def save(self, folder: Path, replay: Replay, check: Replay, kind: TrainKind, **more: Any) -> dict[str, Any]:
        """Write samples to train on again and those to measure forgetting on, when all else of ``train/`` is written.

        Returns the section of ``bundle.json`` about the training, with `more` of its fields.
        """
        replay.save(folder / REPLAY)
        check.save(folder / CHECK)
        return TrainInfo(
            kind=kind,
            batch_size=self._plan.recipe.batch_size,
            replay_samples=len(replay),
            check_samples=len(check),
            bits=replay.codec.bits,
            bytes=sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir()),
            **more,
        ).to_dict()

    def check(self, shape: tuple[int, ...]) -> Replay:
        """Return global samples to measure forgetting on, as features of a shape; none where the task has none."""
        task = self._task
        chosen = [drawn(whole_partition(task, "global.val"), CHECK_SAMPLES)] if task.global_ is not None else []
        return self.replay(chosen, Codec(VALIDATION_BITS, shape))

    def own(self, codec: Codec, size: int) -> Replay:
        """Return samples of the user, every class alike, that a round is not to forget, in at most so many bytes."""
        local = [one for one in training_selections(self._task, self._plan) if one.domain == "local"]
        labels = np.concatenate([one.labels() for one in local])
        order = np.random.default_rng(0).permutation(len(labels))  # by contents, every sample would have to be read
        rows = every_class_alike(labels, order, min(MOST_OWN, size // codec.record_bytes))
        begins = np.cumsum([0, *map(len, local)])
        chosen = [
            replace(one, indices=one.indices[rows[(begin <= rows) & (rows < begin + len(one))] - begin])
            for one, begin in zip(local, begins, strict=False)
        ]
        marks = [mark_of(one.samples.load(int(index))) for one in chosen for index in one.indices]
        return replace(self.replay(chosen, codec), marks=np.array(marks, np.int64))

    def replay(self, selections: Sequence[Selection], codec: Codec) -> Replay:
        """Return the codes and labels of some selections."""
        codes = [codec.encode(batch) for selection in selections for batch in self._batches(selection)]
        none = self._task.local.train.labels[:0]  # of the right kind, where there are no samples
        labels = np.concatenate([none, *(selection.labels() for selection in selections)])
        return Replay(codec, np.concatenate([np.empty((0, codec.record_bytes), np.uint8), *codes]), labels)
