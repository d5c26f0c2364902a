"""Which samples a plan trains on, sets thresholds on, and is scored on."""

from dataclasses import dataclass

import numpy as np

from tuner.arrays import Labels, RowNumbers
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.exit_calibration import calibration_share
from tuner.task import Samples, Task, stratified_holdout
from tuner.task.mixing import mixed_indices
from tuner.task.partition import recording_holdout


@dataclass(frozen=True, slots=True)
class Selection:
    """Some samples of one partition.

    Attributes:
        partition: Its name: ``"local.train"``.
        samples: All of the partition's.
        indices: Indices of those selected.
    """

    partition: str
    samples: Samples
    indices: RowNumbers

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def domain(self) -> str:
        """``local`` or ``global``."""
        return self.partition.partition(".")[0]

    def ids(self) -> list[str]:
        """Return the samples' content hashes."""
        return [self.samples.sample_id(int(index)) for index in self.indices]

    def labels(self) -> Labels:
        """Return the samples' labels."""
        return self.samples.labels[self.indices]


def whole_partition(task: Task, partition: str) -> Selection:
    """Return all samples of a partition (``"local.val"``)."""
    samples = dict(task.partitions())[partition]
    return Selection(partition, samples, np.arange(len(samples)))


def training_selections(task: Task, plan: TrialPlan) -> list[Selection]:
    """Return what one epoch of the plan trains on: the local samples and the mixed-in global ones."""
    local = whole_partition(task, "local.train")
    if plan.heads.exits:
        rest = np.setdiff1d(local.indices, calibration_selection(task).indices)
        local = Selection(local.partition, local.samples, rest)
    return [local, *mixed_selections(task, plan)]


def calibration_selection(task: Task) -> Selection:
    """Return the local training samples on which thresholds of exits are set, and which train nothing: a fifth.

    At least 50, but at most half; of windows, whole recordings where a class has several, as neighbours are alike.
    Source: PersEPhonEE, calibration on held-out data of the user.
    """
    samples = task.local.train
    share = calibration_share(len(samples))
    indices = stratified_holdout(samples.labels, share)[1]
    origins, places = np.unique([samples.origin(index) for index in range(len(samples))], return_inverse=True)
    if len(origins) < len(samples):
        whole_recordings = recording_holdout(samples.labels, places, [""] * len(origins), share)[1]
        indices = whole_recordings if len(whole_recordings) else indices
    return Selection("local.train", samples, indices)


def mixed_selections(task: Task, plan: TrialPlan) -> list[Selection]:
    """Return the global samples that the plan trains on in addition to the local ones, if any."""
    if task.global_ is None or plan.data.alpha == 0:
        return []
    return [Selection("global.train", task.global_.train, mixed_indices(task.global_.train.labels, plan.data.alpha))]


def validation_selections(task: Task) -> list[Selection]:
    """Return what a trial is scored on: the local samples, and the global ones where there are any."""
    names = [name for name in ("local.val", "global.val") if name in dict(task.partitions())]
    return [whole_partition(task, name) for name in names]
