"""The same data twice: samples of one content in two partitions or two classes, and sessions on both sides."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path

from tuner.errors import TaskError
from tuner.task.data.samples import Samples
from tuner.task.task import Task

#: Pairs that a message names.
MOST_NAMED = 2
#: What a warning on scores says: `doubts` finds it again in the notes of a run.
_TOO = "so scores are too"
Pairs = list[tuple[str, str]]


def shared_samples(task: Task) -> Iterator[str]:
    """Yield a warning for each pair of partitions that share data, where scores need them apart, and on conflicts.

    Only samples of the same size are read and hashed; trials need the hashes too.

    Raises:
        TaskError: Partitions of one domain hold the same files, whatever the paths; or a sample cannot be read.
    """
    for (first, samples), (scored, others) in combinations(_learned_first(task), 2):
        if _stage(first) == _stage(scored):  # neither is learned from before the other is scored
            continue
        places = copies(samples, others)
        is_one_domain = first.partition(".")[0] == scored.partition(".")[0]
        if places:
            pairs = [(samples.name(one), others.name(other)) for one, other in places]
            count = f"{len(pairs):,} of the {len(others):,} samples of {scored} {'is' if len(pairs) == 1 else 'are'}"
            if is_one_domain and any(is_same_file(samples.whole(one), others.whole(other)) for one, other in places):
                raise TaskError(
                    f"{task.name}: {count} the same as samples of {first} ({named(pairs)}), so scores would be of "
                    f"samples already seen: give other data, or leave {scored} out"
                )
            yield f"warning: {count} also in {first}, {_TOO} good; remove one of each: {named(pairs)}"
    yield from shared_sessions(task)
    conflicts, _ = repeats(task.local.train)
    if conflicts and task.labelled:
        what = "1 sample" if len(conflicts) == 1 else f"{len(conflicts):,} samples"
        yield f"warning: local.train has {what} under two labels; remove the wrong one of each: {named(conflicts)}"


def shared_sessions(task: Task) -> Iterator[str]:
    """Yield a warning for each partition that has samples of the same sessions as the training samples."""
    for first, samples in task.partitions():
        for scored, others in task.partitions():
            if _stage(first) != "train" or scored == first or not scored.startswith(first.removesuffix("train")):
                continue
            if sessions := _sessions(samples) & _sessions(others):
                of_these = sum(others.origin(index) in sessions for index in range(len(others)))
                were = "was" if of_these == 1 else "were"
                count = "1 session" if len(sessions) == 1 else f"{len(sessions):,} sessions"
                yield (
                    f"warning: {of_these:,} of the {len(others):,} samples of {scored} {were} taken in the same "
                    f"session as samples of {first} ({count}), {_TOO} high; give each session to one "
                    "of them, and each class several sessions"
                )


def doubts(notes: Iterable[str]) -> list[str]:
    """Return the warnings, of all that was noted of a task, that its scores are too good; without names of files."""
    return [line.partition(";")[0] for line in notes if _TOO in line]


def copies(samples: Samples, others: Samples) -> list[tuple[int, int]]:
    """Return the places of a sample and of one of the others with the same content, for each such other one."""
    sizes, other_sizes = ([each.stamp(index) for index in range(len(each))] for each in (samples, others))
    both = {*sizes} & {*other_sizes}
    places = {samples.sample_id(index): index for index, size in reversed([*enumerate(sizes)]) if size in both}
    found = ((places.get(others.sample_id(index)), index) for index, size in enumerate(other_sizes) if size in both)
    return [(place, index) for place, index in found if place is not None]


def repeats(samples: Samples) -> tuple[Pairs, int]:
    """Return the names of each two samples of the same content and different labels, and how many have the same."""
    by_size: dict[str, list[int]] = defaultdict(list)
    for index in range(len(samples)):
        by_size[samples.stamp(index)].append(index)
    known: dict[str, list[int]] = defaultdict(list)
    for index in sorted(index for members in by_size.values() if len(members) > 1 for index in members):
        known[samples.sample_id(index)].append(index)
    again = [(same[0], other) for same in known.values() for other in same[1:]]
    is_other = [bool((samples.labels[one] != samples.labels[other]).any()) for one, other in again]
    named_pairs = [(samples.name(one), samples.name(other)) for one, other in again]
    conflicts = [pair for pair, other in zip(named_pairs, is_other, strict=True) if other]
    return conflicts, len(again) - len(conflicts)


def is_same_file(one: str, other: str) -> bool:
    """Return whether two names lead to one file, by links too."""
    with suppress(OSError, ValueError):  # what is no file, such as a part of an .npz
        return Path(one).samefile(other)
    return False


def named(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the first few pairs, and how many more there are."""
    more = len(pairs) - MOST_NAMED
    listed = ", ".join(f"{one} = {other}" for one, other in pairs[:MOST_NAMED])
    return f"{listed}, and {more:,} more" if more > 0 else listed


def _learned_first(task: Task) -> list[tuple[str, Samples]]:
    """Return the partitions: those that are trained on, those that guide the search, those that are scored once."""
    order = ("train", "val", "test")
    return sorted(task.partitions(), key=lambda item: order.index(_stage(item[0])))


def _stage(partition: str) -> str:
    return partition.rpartition(".")[2]


def _sessions(samples: Samples) -> set[str]:
    """Return the sessions that samples were taken in, where they are known."""
    return {session for at in range(len(samples)) if (session := samples.origin(at)) != samples.name(at)}
