"""Features that a bundle brings along, made by its own frozen blocks."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Floats
from tuner.backends.torch.features.access import VALIDATION_BITS
from tuner.backends.torch.features.selection import Selection, drawn, whole_partition
from tuner.bundle.replay import Replay
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS
from tuner.runtime.train.files import CHECK, REPLAY
from tuner.store.codec import Codec, calibrate, has_own_scales
from tuner.task import Samples, Task
from tuner.training.schedule import batches_of

CALIBRATION_SAMPLES = 256  # of each domain
CHECK_SAMPLES = 500
BATCH = 32
CLIPPED = 0.01


class Features:
    """What the exported model's frozen blocks make of a task's samples.

    Args:
        task: Its samples.
        plan: Where the tail begins, and in how many bits its features are kept.
        carry: The frozen blocks: takes inputs, returns features.
    """

    def __init__(self, task: Task, plan: TrialPlan, carry: Callable[[Floats], Floats]) -> None:
        self._task, self._plan, self._carry = task, plan, carry

    def batches(self, selection: Selection) -> Iterator[Floats]:
        """Yield float32 [n, *shape], a few samples at a time."""
        for indices in batches_of(selection.indices, BATCH):
            yield self._carry(self._task.batch(selection.samples, indices))

    def of(self, selection: Selection) -> Floats:
        """Return float32 [n, *shape]."""
        return np.concatenate(list(self.batches(selection)))

    def codec(self) -> Codec:
        """Return how features are kept: in the plan's width, in 8 bits where the plan keeps none.

        The scales are per channel, of local and global training samples as in a study. Inputs are not clipped: 8 bits
        hold the pixels of an image as they are.
        """
        bits = self._plan.cache.bits if self._plan.cached else CODED_BITS
        selections = [drawn(whole_partition(self._task, "local.train"), CALIBRATION_SAMPLES)]
        if self._task.global_ is not None:
            selections.append(drawn(whole_partition(self._task, "global.train"), CALIBRATION_SAMPLES))
        maps = np.concatenate([batch for selection in selections for batch in self.batches(selection)])
        low, high = calibrate(maps, CLIPPED if self._plan.split else 0.0) if bits < VALIDATION_BITS else (None, None)
        return Codec(bits, maps.shape[1:], low, high, has_own_scales(bits, maps.shape[1:]))

    def save(self, mixed: Sequence[Selection], folder: Path) -> tuple[Replay, int]:
        """Write global samples to train on again, and others to measure forgetting on.

        Args:
            mixed: The global samples that the trial was trained on.
            folder: The bundle's.

        Returns:
            The former, and the number of the latter.
        """
        replay = self.replay(mixed, self.codec())
        check = self.check(replay.codec.shape)
        replay.save(folder / REPLAY)
        check.save(folder / CHECK)
        return replay, len(check)

    def check(self, shape: tuple[int, ...]) -> Replay:
        """Return global samples to measure forgetting on, as features of a shape; none where the task has none."""
        task = self._task
        chosen = [drawn(whole_partition(task, "global.val"), CHECK_SAMPLES)] if task.global_ is not None else []
        return self.replay(chosen, Codec(VALIDATION_BITS, shape))

    def replay(self, selections: Sequence[Selection], codec: Codec) -> Replay:
        """Return the codes and labels of some selections."""
        codes = [codec.encode(batch) for selection in selections for batch in self.batches(selection)]
        samples: Samples = self._task.local.train  # gives labels of the right kind where there are no samples
        labels = np.concatenate([samples.labels[:0], *(selection.labels() for selection in selections)])
        return Replay(codec, np.concatenate([np.empty((0, codec.record_bytes), np.uint8), *codes]), labels)
