"""What a bundle is: what it predicts, how good it is, how large, and whether it can train again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.bundle.archive import unpacked
from tuner.bundle.format import FILE, PLAN, Bundle
from tuner.bundle.info import BundleInfo
from tuner.bundle.rounds import EXPORTED, rounds_in_use


@dataclass(frozen=True, slots=True)
class Card:
    """A bundle, described.

    Attributes:
        folder: Folder of the bundle.
        info: What the round in use says of itself.
        round: The round of training in use; None for the bundle as it was exported.
        intervals: 95 % interval of each accuracy of the exported files, by name, where its number of samples is known.
        folds: Number of folds that judged the trial; 0 for none.
        folded_samples: Number of local samples that judged it with them.
        local_samples: Number of local samples that were used in the run, to train and to validate; 0 if not known.
    """

    folder: Path
    info: BundleInfo
    round: str | None
    intervals: Mapping[str, tuple[float, float]]
    bytes: Mapping[str, int]
    folds: int = 0
    folded_samples: int = 0
    local_samples: int = 0

    @property
    def parameters(self) -> int | None:
        """Number of the model's parameters, if the trial recorded it."""
        number = self.info.scores.trial.get("parameters")
        return None if number is None else int(number)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that ``tuner show BUNDLE --json`` prints."""
        content = self.info.to_dict()
        return {
            "bundle": str(self.folder),
            "round": self.round,
            "trainable": self.info.train is not None,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "bytes": dict(self.bytes),
            "folds": self.folds,
            "local_samples": self.local_samples,
            **{name: value for name, value in content.items() if name not in {"files", "format"}},
        }


def card_at(path: Path) -> Card | None:
    """Describe the bundle in a folder or a zip; None where a folder holds none."""
    with unpacked(path) as folder:
        return replace(card_of(folder), folder=path) if (folder / FILE).is_file() else None


def card_of(folder: Path) -> Card:
    """Describe a bundle; of one that has trained on the device, the round in use.

    Raises:
        BundleError: It is not a bundle, comes from a newer version, or a part has changed since it was written.
    """
    bundle = Bundle.open(folder)
    in_use = rounds_in_use(folder)[0]
    sizes = {name: (bundle.folder / name).stat().st_size for name in bundle.info.files}
    plan = bundle.plan() if PLAN in bundle.info.files else None
    folds, folded = (plan.data.folds, plan.local_scored) if plan is not None and plan.data.folds else (0, 0)
    round_ = None if in_use == EXPORTED else in_use
    used = 0 if plan is None else plan.local_used
    return Card(folder, bundle.info, round_, _intervals(bundle), sizes, folds, folded, used)


def _intervals(bundle: Bundle) -> dict[str, tuple[float, float]]:
    """Return the intervals of the accuracies; with several labels a value is an area, and has none."""
    if PLAN not in bundle.info.files:
        return {}
    task = bundle.plan().task
    counts = {"local_accuracy": task.local_val, "global_accuracy": task.global_val}
    values = bundle.info.scores.from_pixels
    found = {name: bundle.targets.interval(values[name], count) for name, count in counts.items() if name in values}
    return {name: bounds for name, bounds in found.items() if bounds is not None}
