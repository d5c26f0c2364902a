"""Which samples thresholds are set on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.backends.torch.features.stores import access
from tests.backends.torch.plans import plan_of
from tuner.backends.torch.features.fill import fill, missing
from tuner.backends.torch.features.selection import (
    are_apart,
    calibration_selection,
    local_folds,
    scored_selections,
    training_selections,
    validation_selections,
    whole_partition,
    withheld_selection,
)
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.baselines import baselines
from tuner.backends.torch.trial.untouched import untouched
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.task import Domain, InputSpec, ModelSpec, Recording, Subset, Task, WindowSamples
from tuner.task.partition import fold_numbers

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


def folded(task: Task, loaded: OpenModel, folds: int = 4) -> TrialPlan:
    plan = plan_of(task, loaded)
    return replace(plan, data=replace(plan.data, folds=folds))


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_are_stratified_and_the_same_again(folds: int) -> None:
    labels = np.repeat([0, 1, 2], [5, 8, 11])
    numbers = fold_numbers(labels, folds)
    assert numbers.tolist() == fold_numbers(labels, folds).tolist()
    sizes = np.array([[((labels == row) & (numbers == one)).sum() for one in range(1, folds + 1)] for row in range(3)])
    assert (np.ptp(sizes, axis=1) <= 1).all()
    assert sizes.sum(axis=0).tolist() == [DataPlan(folds=folds, fold=one).left_out(24) for one in range(1, folds + 1)]
    several = np.eye(3, dtype=np.float32)[labels]
    assert np.bincount(fold_numbers(several, folds))[1:].tolist() == sizes.sum(axis=0).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("exits", [False, True])
def test_no_sample_is_trained_on_and_judged_at_once_and_each_judges_once(
    task: Task, loaded: OpenModel, exits: bool
) -> None:
    plan = folded(task, loaded)
    plan = replace(plan, heads=HeadsPlan("with-tail", (Exit(1, 8),))) if exits else plan
    judged: list[tuple[str, int]] = []
    for one in plan.trainings:
        local, *mixed = training_selections(task, one)
        (scored, *old) = validation_selections(task, one.data)
        held = calibration_selection(task, one) if exits else local
        used = {*local.ids(), *held.ids()}
        assert len(used) == one.local_samples
        assert not used & set(scored.ids())
        assert not exits or not set(held.ids()) & set(local.ids())
        assert len(scored) == one.local_scored
        assert sum(map(len, mixed)) == one.global_samples
        assert sum(map(len, old)) == one.global_scored
        judged += [(scored.partition, int(index)) for index in scored.indices]
    everything = [(own.partition, int(at)) for own in scored_selections(task, plan.data)["local"] for at in own.indices]
    assert sorted(judged) == sorted(everything)
    assert len(set(everything)) == len(task.local.train) + len(task.local.val)


@pytest.mark.slow
def test_the_features_of_a_plan_are_computed_once_for_all_its_folds(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), folded(task, loaded)
    assert missing(here, [plan]) == plan.read_samples
    fill(here, [plan])
    assert [missing(here, [one]) for one in plan.trainings] == [0] * 5
    given, (probe,) = untouched(here, plan.data), baselines(here, plan.data)
    assert "local_accuracy" not in given.values, "it has no output for these classes"
    assert "no output for these classes" in given.notes[0]
    assert sum(total for _, _, total in probe.classes["local"].rows) == plan.local_scored
    right = sum(right for _, right, _ in probe.classes["local"].rows)
    assert probe.values["local_accuracy"] == pytest.approx(right / plan.local_scored)
    assert probe.values["local_accuracy"] > 0.9
    assert probe.values["global_accuracy"] == 0.0
    assert len(probe.right) == 1 + plan.data.folds
