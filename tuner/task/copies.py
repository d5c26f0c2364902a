"""Samples that are trained on and scored too: the same file by any way to it, or a copy of its content."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

from tuner.errors import TaskError
from tuner.task.data.samples import Samples
from tuner.task.task import Task

#: Pairs that a message names.
MOST_NAMED = 2


def shared_samples(task: Task) -> Iterator[str]:
    """Yield a warning for each pair of partitions of which the same content is trained on and scored.

    Only samples of the same size are read and hashed; trials need the hashes too.

    Raises:
        TaskError: Partitions of one domain hold the same files, whatever the paths; or a sample cannot be read.
    """
    partitions = dict(task.partitions())
    learning = [name for name in partitions if name.endswith(".train")]
    for learned, (scored, samples) in product(learning, partitions.items()):
        pairs = [] if scored in learning else _pairs(partitions[learned], samples)
        if pairs:
            count = f"{len(pairs):,} of the {len(samples):,} samples of {scored} are"
            named = ", ".join(f"{other} = {one}" for one, other in pairs[:MOST_NAMED])
            same_files = sum(is_same_file(*pair) for pair in pairs)
            if same_files and learned.partition(".")[0] == scored.partition(".")[0]:
                raise TaskError(
                    f"{task.name}: {count} the same as samples of {learned} ({named}), so scores would be measured on "
                    f"samples already seen: give other data, or leave {scored} out"
                )
            yield (
                f"warning: {count} also in {learned}, so scores are too good; remove one of each: {named}"
                + (f", and {len(pairs) - MOST_NAMED:,} more" if len(pairs) > MOST_NAMED else "")
            )


def is_same_file(one: str, other: str) -> bool:
    """Return whether two names lead to one file, by links too."""
    with suppress(OSError, ValueError):
        return Path(one).samefile(other)
    return False


def _pairs(train: Samples, samples: Samples) -> list[tuple[str, str]]:
    """Return the names of a training sample and of a scored one with the same content, for each such."""
    learned, scored = ([one.stamp(index) for index in range(len(one))] for one in (train, samples))
    sizes = {*learned} & {*scored}
    places = {train.sample_id(index): index for index, size in enumerate(learned) if size in sizes}
    twins = ((index, places.get(samples.sample_id(index))) for index, size in enumerate(scored) if size in sizes)
    return [(train.name(place), samples.name(index)) for index, place in twins if place is not None]
