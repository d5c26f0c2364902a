"""Which samples thresholds are set on."""

import numpy as np
import pytest

from tuner.backends.torch.features.selection import are_apart, local_folds, whole_partition, withheld_selection
from tuner.task import Domain, InputSpec, ModelSpec, Recording, Subset, Task, WindowSamples

SPEC = InputSpec("signals", window=10, hop=5)


def windows(recordings: int, *, length: int = 50) -> Task:
    """Return a task of two classes with so many recordings each, of nine windows that overlap."""
    count = 1 + (length - 10) // 5
    cut = [Recording(f"r{number}", "", np.full((1, length), float(number))) for number in range(2 * recordings)]
    samples = WindowSamples(cut, np.repeat(np.arange(2 * recordings) % 2, count), SPEC)
    some = Subset(samples, np.arange(1, len(samples)))
    return Task("w", ModelSpec("m:build"), SPEC, "single-label", Domain(some, some), None, ("a", "b"), (), (0, 1))


@pytest.mark.parametrize("recordings", [2, 3, 10])
def test_no_recording_has_windows_on_both_sides(recordings: int) -> None:
    task = windows(recordings)
    train, held = task.local.train, withheld_selection(task)
    names = [train.origin(index) for index in range(len(train))]
    apart = {names[index] for index in held.indices}
    rest = {name for index, name in enumerate(names) if index not in set(held.indices.tolist())}
    assert apart
    assert not apart & rest
    assert set(held.labels()) == {0, 1}
    assert {int(name[1:]) % 2 for name in rest} == {0, 1}


def test_windows_of_one_recording_do_not_judge_each_other() -> None:
    assert not are_apart(whole_partition(windows(3), "local.train"))
    assert are_apart(whole_partition(windows(3, length=10), "local.val"))


def test_a_single_recording_a_class_gives_windows() -> None:
    task = windows(1)
    held = withheld_selection(task)
    assert 0 < len(held) < len(task.local.train)


@pytest.mark.parametrize("recordings", [1, 2, 7])
def test_a_recording_has_one_fold_but_where_its_class_has_no_other(recordings: int) -> None:
    selection = whole_partition(windows(recordings), "local.train")
    folds = local_folds(selection)
    names = np.array([selection.samples.origin(index) for index in range(len(selection))])
    of_each = {name: set(folds[names == name].tolist()) for name in names}
    assert all((len(own) == 1) == (recordings > 1) for own in of_each.values())
    for row in (0, 1):
        assert len(set(folds[selection.labels() == row].tolist())) == (5 if recordings == 1 else min(5, recordings))


def test_the_partitions_have_names(task: Task) -> None:
    assert list(dict(task.partitions())) == [
        f"{domain}.{split}" for domain in ("local", "global") for split in ("train", "val", "test")
    ]
