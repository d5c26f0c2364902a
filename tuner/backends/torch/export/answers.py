"""What an exported model answers for whole sounds and recordings, and the thresholds of labels that follow."""

from typing import Any

import numpy as np

from tuner.arrays import Doubles, Floats
from tuner.bundle.info import Section
from tuner.metrics import f1_thresholds, mean_average_precision
from tuner.task import Samples, Task
from tuner.task.data.samples import mean_of_wholes, wholes
from tuner.task.inputs import input_kind


class Answers:
    """Collects answers by partition: of a sound, the mean over its patches, as a device predicts it.

    Args:
        task: The task.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._validation: list[tuple[Doubles, Doubles]] = []

    def add(self, name: str, samples: Samples, logits: Floats) -> dict[str, float]:
        """Take a partition's logits, float32 [n, labels], and return scores in addition to its accuracy.

        Args:
            name: Name of the partition's accuracy.
            samples: The partition.
            logits: By the model as it is exported.

        Returns:
            By name: the accuracy over sounds; the mean average precision where a sample may have several labels.
        """
        if not self._task.labelled and name != "global_accuracy":
            return {}
        labels, targets, kind = samples.labels, self._task.targets, input_kind(self._task.input.kind)
        probabilities = targets.probabilities(logits)
        scores: dict[str, float] = {}
        if kind.windowed:
            _, places = wholes(samples)
            probabilities = mean_of_wholes(probabilities, places)
            labels = labels[np.unique(places, return_index=True)[1]]
        if kind.whole:
            scores[name.replace("accuracy", f"{kind.whole}_accuracy")] = targets.score(probabilities, labels)
        if targets.several:
            scores[name.replace("accuracy", "precision")] = mean_average_precision(probabilities, labels)
            if name != "test_accuracy":
                self._validation.append((probabilities, labels.astype(np.float64)))
        return scores

    def sections(self) -> dict[str, Any]:
        """Return the section of ``bundle.json`` with the thresholds of labels; none where a sample has one label."""
        if not self._validation:
            return {}
        probabilities, labels = (np.concatenate(parts) for parts in zip(*self._validation, strict=True))
        return {Section.LABEL_THRESHOLDS.value: f1_thresholds(probabilities, labels)}
