"""New samples on their way to a bundle's exits: through all of its segments, once."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from tuner.arrays import Doubles, Floats, Labels
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.runtime.infer.chain import Chain
from tuner.runtime.infer.inputs import Sample, inputs, label_rows
from tuner.targets.base import Label
from tuner.task import normalise
from tuner.task.data.samples import content_id

AT_ONCE = 2  # samples that run through the segments at once: more take memory, and no less time


class ExitBatch(NamedTuple):
    """A few new samples.

    Attributes:
        features: What the first exit reads, float32 [n, ...].
        final: The final head's logits, float32 [n, labels].
        truth: Their labels; without labels the final head's answers.
        places: Place of each sample in [0, 1), by its content, so that what once set thresholds does not train in a
            later round; all windows of a recording have one.
    """

    features: Floats
    final: Floats
    truth: Labels
    places: Doubles


def exit_batches(
    bundle: Bundle, chain: Chain, samples: Sequence[Sample], labels: Sequence[Label] | None
) -> Iterator[ExitBatch]:
    """Run samples through all segments, a few at a time.

    Args:
        bundle: Bundle with exits.
        chain: Its segments.
        samples: As for `Trainer.add`.
        labels: Label of each, among the bundle's; None where they are not known of all.

    Raises:
        TunerError: There are no samples, or not as many labels; a file cannot be read, a shape is another one, or a
            label is not the bundle's.
    """
    if not len(samples) or (labels is not None and len(samples) != len(labels)):
        count = "no labels" if labels is None else f"{len(labels)} labels"
        raise BundleError(
            f"there are {len(samples)} samples and {count}: give samples, and one label for each or none at all"
        )
    rows, arrays = None if labels is None else label_rows(labels, bundle), inputs(samples, bundle)
    places: dict[int, float] = {}
    while batch := list(islice(arrays, AT_ONCE)):
        for number, array in batch:
            if number not in places:
                places[number] = int(content_id(np.ascontiguousarray(array).tobytes())[:8], 16) / 2**32
        pixels = normalise(np.stack([array for _, array in batch]), bundle.input)
        first, final = chain.step(0, pixels)
        features = first
        for index in range(1, len(chain)):
            features, final = chain.step(index, features)
        numbers = [number for number, _ in batch]
        truth = bundle.targets.answers(final) if rows is None else rows[numbers]
        yield ExitBatch(first, final, truth, np.array([places[number] for number in numbers]))
