"""Which samples a plan trains on, sets thresholds on, and is scored on."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.backends.torch.prefix import splits_of
from tuner.plan import TrialPlan
from tuner.task import Samples, Task, stratified_holdout
from tuner.task.mixing import mixed
from tuner.task.split import recording_holdout

CALIBRATED_SHARE, CALIBRATED_LEAST, CALIBRATED_MOST = 0.2, 50, 0.5


@dataclass(frozen=True, slots=True)
class Pick:
    """Some samples of one split, by index."""

    split: str
    samples: Samples
    indices: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def ids(self) -> list[str]:
        """Return the samples' content hashes."""
        return [self.samples.sample_id(int(index)) for index in self.indices]

    def labels(self) -> npt.NDArray[np.generic]:
        """Return the samples' labels."""
        return self.samples.labels[self.indices]


def every(task: Task, split: str) -> Pick:
    """Return all samples of a split (``"local.val"``)."""
    samples = splits_of(task)[split]
    return Pick(split, samples, np.arange(len(samples)))


def training(task: Task, plan: TrialPlan) -> list[Pick]:
    """Return what one epoch of the plan trains on: the local samples and the mixed-in global ones."""
    local = every(task, "local.train")
    if plan.heads.exits:
        local = Pick(local.split, local.samples, np.setdiff1d(local.indices, calibrating(task).indices))
    return [local, *mixed_in(task, plan)]


def calibrating(task: Task) -> Pick:
    """Return the local training samples on which thresholds of exits are set, and which train nothing: a fifth.

    At least 50, but at most half; of windows, whole recordings where a class has several, as neighbours are alike.
    Source: PersEPhonEE, calibration on held-out data of the user.
    """
    samples = task.local.train
    share = min(CALIBRATED_MOST, max(CALIBRATED_SHARE, CALIBRATED_LEAST / len(samples)))
    held = stratified_holdout(samples.labels, share)[1]
    names, places = np.unique([samples.origin(index) for index in range(len(samples))], return_inverse=True)
    if len(names) < len(samples):
        apart = recording_holdout(samples.labels, places, [""] * len(names), share)[1]
        held = apart if len(apart) else held
    return Pick("local.train", samples, held)


def mixed_in(task: Task, plan: TrialPlan) -> list[Pick]:
    """Return the global samples that the plan trains on beside the local ones, if any."""
    if task.global_ is None or plan.data.alpha == 0:
        return []
    return [Pick("global.train", task.global_.train, mixed(task.global_.train.labels, plan.data.alpha))]


def validation(task: Task) -> list[Pick]:
    """Return what a trial is scored on: the local samples, and the global ones where there are any."""
    return [every(task, split) for split in ("local.val", "global.val") if split in splits_of(task)]
