"""Access to stores of features, and samples that note which of them are loaded."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.backends.base import silent
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.trial import TrialPlan
from tuner.store.store import Store
from tuner.task import Samples, Subset, Task


def access(
    task: Task, loaded: OpenModel, folder: Path, cap: int | None = None, said: list[str] | None = None
) -> Access:
    def report(progress: object) -> bool:
        if said is not None and isinstance(progress, dict) and "warning" in progress:
            said.append(progress["warning"])
        return False

    return Access(task, loaded, Store(folder, cap), 1, report if said is not None else silent)


class Counting(Subset):
    """Samples that note which of them are loaded."""

    def __init__(self, samples: Samples, loads: list[int]) -> None:
        super().__init__(samples, np.arange(len(samples)))
        self._loads = loads

    def load(self, index: int) -> npt.NDArray[np.generic]:
        self._loads.append(index)
        return super().load(index)


def digests(one: Access, plans: list[TrialPlan]) -> list[str]:
    wanted = {(plan.split, plan.cache.bits) for plan in plans} | {(plan.split, 16) for plan in plans}
    return [one.file(*at).digest() for at in sorted(wanted)]
