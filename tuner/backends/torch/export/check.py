"""The check of exported files: ONNX Runtime and PyTorch on the same samples, from pixels; and the scores of both."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from tuner.arrays import Doubles, Floats, Labels, RowNumbers
from tuner.backends.torch.features.selection import VALIDATION
from tuner.backends.torch.model.graph.layout import spatial
from tuner.bundle.info import Section
from tuner.machine.control_group import usable_processors
from tuner.metrics import f1_thresholds, mean_average_precision
from tuner.ort.parity import TOLERANCE, largest, largest_difference, require_parity
from tuner.targets.base import ACCURACY
from tuner.task import Samples, Subset, Task
from tuner.task.data.samples import mean_of_wholes, wholes
from tuner.task.inputs import input_kind
from tuner.training.epochs import Report
from tuner.training.schedule import batches_of

#: Samples that a thread decodes and runs at a time.
CHECK_BATCH = 16
#: Most batches that are run at once: memory for as many is taken.
MOST_THREADS = 4
#: At most so many samples of a partition, evenly spread, are compared with PyTorch.
COMPARED = 16


def scored_partitions(task: Task) -> dict[str, Samples]:
    """Return the samples that an exported model is scored on, by the name of the score."""
    partitions = {"local_accuracy": task.local.val}
    if task.global_ is not None:
        partitions["global_accuracy"] = task.global_.val
    if task.local.test is not None:
        partitions["test_accuracy"] = task.local.test
    return partitions


def checked_partitions(task: Task, *, learned: bool) -> dict[str, Samples]:
    """Return the samples that an exported model runs on: those that score it, and what is compared with PyTorch alone.

    Local validation samples that the weights have `learned` say nothing of them: a few are compared, by another name.
    """
    partitions = scored_partitions(task)
    if learned:
        samples = partitions.pop("local_accuracy")
        partitions[VALIDATION] = Subset(samples, np.arange(0, len(samples), _every(samples)))
    return partitions


def _every(samples: Samples) -> int:
    return -(-len(samples) // COMPARED)


class PixelScores:
    """Scores of a model on partitions of a task's samples, `scores`, and what is set on them."""

    def __init__(self, task: Task) -> None:
        self._task, self.sets_thresholds = task, task.targets.several  # of labels, on all validation samples
        self._validation: list[tuple[Doubles, Doubles]] = []
        self.scores: dict[str, float] = {}

    def score(
        self, name: str, samples: Samples, logits: Floats, truth: Labels | None = None, cooled: Floats | None = None
    ) -> None:
        """Score a partition: its accuracy, that over whole sounds, and the precision of several labels a sample.

        One whose name is none of an accuracy has no score. The answer to a sound is the mean over its patches, as a
        device predicts it.

        Args:
            name: Name of the partition's accuracy.
            samples: The partition.
            logits: By the model as it is exported, float32 [n, outputs].
            truth: What they are held against, where it is not the samples' own labels.
            cooled: The logits by their temperatures, where they have one.
        """
        if not name.endswith(ACCURACY):
            return
        targets, labels, kind = self._task.targets, samples.labels, input_kind(self._task.input.kind)
        against = labels if truth is None else truth
        self.scores |= targets.scores(name.removesuffix(ACCURACY), logits, against, labelled=self._task.labelled)
        if not self._task.labelled and name != "global_accuracy":
            return
        probabilities = targets.probabilities(logits if cooled is None else cooled)
        if kind.windowed:
            _, places = wholes(samples)
            probabilities = mean_of_wholes(probabilities, places)
            labels = labels[np.unique(places, return_index=True)[1]]
        if kind.whole:
            self.scores[name.replace("accuracy", f"{kind.whole}_accuracy")] = targets.score(probabilities, labels)
        if self.sets_thresholds:
            self.scores[name.replace("accuracy", "precision")] = mean_average_precision(probabilities, labels)
            if name != "test_accuracy":
                self._validation.append((probabilities, labels.astype(np.float64)))

    def sections(self) -> dict[str, Any]:
        """Return the section of ``bundle.json`` with the thresholds of labels; none where a sample has one label."""
        if not self._validation:
            return {}
        probabilities, labels = (np.concatenate(parts) for parts in zip(*self._validation, strict=True))
        return {Section.LABEL_THRESHOLDS.value: f1_thresholds(probabilities, labels)}


class Check(PixelScores):
    """An exported model next to the one that it was exported from.

    Both take a normalised batch, float32 [n, ...], and return logits, float32 [..., n, outputs]: `written` by ONNX
    Runtime, in several threads at once, `original` by PyTorch. `scores` are those of the partitions that `score` was
    given, by name. The report counts samples of all `partitions` that are to be run.
    """

    def __init__(
        self,
        task: Task,
        written: Callable[[Floats], Floats],
        original: Callable[[torch.Tensor], torch.Tensor],
        report: Report,
        partitions: Mapping[str, Samples],
    ) -> None:
        super().__init__(task)
        self._written, self._original = written, original
        self._report, self._done, self._of = report, 0, sum(map(len, partitions.values()))
        self._differences: list[float] = []

    def logits(self, samples: Samples, stored: Floats | None = None) -> Floats:
        """Return ONNX Runtime's logits, float32 [..., n, outputs]; how far some are from PyTorch's is kept.

        Where it has the logits of `stored` features, float32 [n, outputs], of those too, no more samples are run.
        """
        every = _every(samples)
        some = np.arange(0, len(samples), every)
        outputs, pixels = self._run(samples, np.arange(len(samples)) if stored is None else some)
        with torch.inference_mode():
            theirs = self._original(spatial(torch.from_numpy(pixels))).numpy()
        mine = outputs if stored is not None else outputs[..., ::every, :]
        self._differences.append(largest_difference(theirs, mine))
        if stored is None:
            return outputs
        if not largest_difference(stored[some], mine) <= TOLERANCE:
            self._done -= len(some)
            return self.logits(samples)
        self._done += len(samples) - len(some)
        return stored

    def _run(self, samples: Samples, rows: RowNumbers) -> tuple[Floats, Floats]:
        """Return ONNX Runtime's logits of some rows, and the pixels of those that are compared.

        Each processor decodes samples and runs them: twice as fast on two as threads within ONNX Runtime's operators.
        """
        parts, pixels, every = list[Floats](), list[Floats](), _every(samples)

        def run(rows: RowNumbers) -> tuple[Floats, Floats]:
            batch = self._task.batch(samples, rows)
            return self._written(batch), batch[rows % every == 0]

        with ThreadPoolExecutor(min(usable_processors(), MOST_THREADS)) as pool:
            for part, again in pool.map(run, batches_of(rows, CHECK_BATCH)):
                parts.append(part)
                pixels.append(again)
                self._done += part.shape[-2]
                self._report({"scored": self._done, "of": max(self._done, self._of)})
        return np.concatenate(parts, axis=-2), np.concatenate(pixels)

    def largest_difference(self) -> float:
        """Return the largest difference of the logits so far; refuse one that ONNX Runtime should not have."""
        worst = largest(self._differences)
        require_parity("ONNX Runtime", "PyTorch", worst)
        return worst
