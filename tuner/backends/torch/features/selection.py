"""Which samples a plan trains on, sets thresholds on, and is scored on."""

from dataclasses import dataclass, replace

import numpy as np

from tuner.arrays import Labels, RowNumbers
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.calibration import FOLDS, calibration_share
from tuner.task import Samples, Task, stratified_holdout
from tuner.task.data.sessions import numbered
from tuner.task.mixing import mixed_indices, shared_indices
from tuner.task.partition import recording_folds, recording_holdout

WHOLE = DataPlan()
#: Partition whose samples judge a trial.
VALIDATION = "local.val"


@dataclass(frozen=True, slots=True)
class Selection:
    """Samples of a partition (``"local.train"``): the indices of some, next to all of them."""

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


def drawn(selection: Selection, count: int) -> Selection:
    """Return at most `count` samples of a selection, drawn with a seed."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(selection))[:count])
    return replace(selection, indices=selection.indices[chosen])


def shared_partition(task: Task, partition: str, share: float) -> Selection:
    """Return the samples of a partition that a share in (0, 1] takes."""
    samples = dict(task.partitions())[partition]
    return Selection(partition, samples, shared_indices(samples.labels, share))


def training_selections(task: Task, plan: TrialPlan) -> list[Selection]:
    """Return what one epoch of the plan trains on, where no selector chooses: local and mixed-in global samples."""
    local = local_selection(task, plan.data)
    if plan.heads.exits and not plan.out_of_fold:
        rest = np.setdiff1d(local.indices, withheld_selection(task, plan.data).indices)
        local = Selection(local.partition, local.samples, rest)
    return [local, *refit_selections(task, plan.data), *mixed_selections(task, plan)]


def refit_selections(task: Task, data: DataPlan) -> list[Selection]:
    """Return the local validation samples that are learned too; their features are stored as for scoring."""
    return [whole_partition(task, VALIDATION)] if data.refit else []


def local_selection(task: Task, data: DataPlan) -> Selection:
    """Return the local training samples that are used, those that set thresholds of exits included."""
    used = shared_partition(task, "local.train", data.share)
    if not data.fold:
        return used
    return replace(used, indices=np.flatnonzero(judging_folds(task, data.folds) != data.fold))


def judging_folds(task: Task, folds: int) -> RowNumbers:
    """Return the fold of each local training sample by which ``--folds`` judges; a session is in one fold."""
    samples = task.local.train
    sessions = numbered([samples.origin(index) for index in range(len(samples))])
    return recording_folds(samples.labels, sessions, folds)


def calibration_selection(task: Task, plan: TrialPlan) -> Selection:
    """Return the local training samples on which thresholds of exits are set: all, or those that are withheld."""
    return local_selection(task, plan.data) if plan.out_of_fold else withheld_selection(task, plan.data)


def local_folds(*local: Selection) -> RowNumbers:
    """Return the fold of each local sample: those of a fold are answered by exits that learned from the others only.

    Of windows, a recording is in one fold if its class has several recordings, as neighbours are alike.
    """
    return recording_folds(np.concatenate([one.labels() for one in local]), _recordings(*local), FOLDS)


def are_apart(*selections: Selection) -> bool:
    """Return whether no two samples are of one recording or session, too much alike to judge each other."""
    return len(np.unique(_recordings(*selections))) == sum(map(len, selections))


def _recordings(*selections: Selection) -> RowNumbers:
    """Return the number of the recording or session that each sample is of; its own number where none is known."""
    origins = [one.samples.origin(int(index)) for one in selections for index in one.indices]
    return np.unique(origins, return_inverse=True)[1]


def withheld_selection(task: Task, data: DataPlan = WHOLE) -> Selection:
    """Return the local training samples that set thresholds and train nothing where training is by steps: a fifth.

    At least 50, but at most half; of windows, whole recordings where a class has several. Source: PersEPhonEE.
    """
    used = local_selection(task, data)
    labels, held = used.labels(), calibration_share(len(used))
    places = stratified_holdout(labels, held)[1]
    recordings = _recordings(used)
    if (count := len(np.unique(recordings))) < len(used):
        whole_recordings = recording_holdout(labels, recordings, [""] * count, held)[1]
        places = whole_recordings if len(whole_recordings) else places
    return Selection(used.partition, used.samples, used.indices[places])


def scored_selections(task: Task, data: DataPlan) -> dict[str, list[Selection]]:
    """Return, by domain, what all trainings of a plan are scored on together."""
    by_domain = {selection.domain: [selection] for selection in validation_selections(task, data)}
    if data.folds and not data.fold and not data.refit:
        by_domain["local"].append(whole_partition(task, "local.train"))
    return by_domain


def mixed_selections(task: Task, plan: TrialPlan) -> list[Selection]:
    """Return the global samples that the plan mixes in, where no selector chooses, which takes as many."""
    if task.global_ is None or plan.data.alpha == 0:
        return []
    samples = task.global_.train
    return [Selection("global.train", samples, mixed_indices(samples.labels, plan.data.alpha * plan.data.share))]


def pool_selections(task: Task, plan: TrialPlan) -> list[Selection]:
    """Return the global samples whose features are computed, if any; see `TrialPlan.pool`."""
    return mixed_selections(task, replace(plan, data=plan.pool))


def validation_selections(task: Task, data: DataPlan = WHOLE) -> list[Selection]:
    """Return what a training is scored on: the local samples, and the global ones where there are any.

    One that leaves a fold out is scored on that alone; one that learns the local ones too, on the global ones.
    """
    if data.fold:
        in_fold = judging_folds(task, data.folds) == data.fold
        return [Selection("local.train", task.local.train, np.flatnonzero(in_fold))]
    asked = ("global.val",) if data.refit else (VALIDATION, "global.val")
    names = [name for name in asked if name in dict(task.partitions())]
    return [shared_partition(task, name, data.share) for name in names]
