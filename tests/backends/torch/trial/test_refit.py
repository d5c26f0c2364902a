"""A last training on every local sample: what it reads, and the head that it keeps."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.backends.torch.features.stores import Counting, access
from tests.backends.torch.plans import carried_out, plan_of
from tests.sessions import opened
from tuner.backends.base import CHECKPOINT, Exported, Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.fill import missing
from tuner.backends.torch.features.reader import Reader, TrainingReader
from tuner.backends.torch.features.selection import local_folds, training_selections, validation_selections
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.heads import Exit, HeadsPlan
from tuner.results.records.trial import HEAD_SOLVED
from tuner.store.store import Store
from tuner.task import Task


def test_all_local_samples_are_learned_from_what_is_stored_and_only_global_ones_judge(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan = plan_of(task, loaded, bits=4)
    plan = replace(plan, recipe=replace(plan.recipe, solve_again=True, epochs=1))
    first = carried_out(task, plan, tmp_path)
    assert first.values[HEAD_SOLVED] in {0.0, 1.0}
    store, weights = Store(tmp_path / "store"), tmp_path / "again" / "weights.safetensors"
    for solve_again in (True, False):
        again = plan.refitted(len(first.epochs), solve_again=solve_again)
        here = access(task, loaded, tmp_path / "store")
        assert missing(here, [again]) == 0
        train, judged, known = training_selections(task, again)
        assert len(train) + len(judged) == again.local_samples
        assert (train.domain, judged.partition, known.domain) == ("local", "local.val", "global")
        assert [one.partition for one in validation_selections(task, again.data)] == ["global.val"]
        reader = TrainingReader(here, again.split, 4, [train, judged])
        both = reader.read([train.ids()[0], judged.ids()[0]])
        assert (both[1] == Reader(here, again.split, 16, [judged]).read(judged.ids()[:1])[0]).all()
        assert (both[0] == Reader(here, again.split, 4, [train]).read(train.ids()[:1])[0]).all()
        outcome = opened(TorchBackend(), task).train(Trial(again, 1, store, weights))
        assert [name for name in outcome.values if name.endswith("l_accuracy")] == ["global_accuracy"]
        assert outcome.values.get(HEAD_SOLVED) == (1.0 if solve_again else None)
    own, refitted = load_file(tmp_path / "weights.safetensors"), load_file(weights)
    assert own.keys() == refitted.keys()
    assert any((own[name] != refitted[name]).any() for name in own)


def test_a_refit_continues_the_trial_for_the_epochs_that_the_added_samples_make_up(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan = plan_of(task, loaded)
    plan = replace(plan, recipe=replace(plan.recipe, epochs=4, schedule="warmup"))
    first, again = tmp_path / "first" / "weights.safetensors", plan.refitted(4, solve_again=False)
    session, store, steps = opened(TorchBackend(), task), Store(tmp_path / "store"), list[tuple[int, int]]()
    session.train(Trial(plan, 1, store, first, keeps=True))

    def report(progress: Mapping[str, Any]) -> bool:
        if "step" in progress:
            steps.append((progress["step"], progress["steps"]))
        return False

    earlier = first.with_name(CHECKPOINT)
    session.train(Trial(again, 1, store, tmp_path / "again" / "weights.safetensors", report, earlier=earlier))
    done = 4 * plan.train_samples // again.train_samples
    of_epoch = math.ceil(again.train_samples / plan.recipe.batch_size)
    assert 0 < done < 4
    assert steps == [(step, 4 * of_epoch) for step in range(done * of_epoch + 1, 4 * of_epoch + 1)]


def test_a_trial_is_judged_on_what_is_stored_and_on_the_samples_where_nothing_is(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan, weights, loads = plan_of(task, loaded, bits=4), tmp_path / "weights.safetensors", list[int]()
    carried_out(task, plan, tmp_path)
    counted = replace(task.local, train=Counting(task.local.train, loads), val=Counting(task.local.val, loads))
    session, judged = opened(TorchBackend(), replace(task, local=counted)), list[Exported]()
    for folder, reads in (("store", False), ("empty", True)):
        loads.clear()
        judged.append(session.judge(plan, weights, Store(tmp_path / folder)))
        assert bool(loads) is reads
    stored, computed = judged
    assert stored.checks == pytest.approx(computed.checks, abs=1e-3)
    own, exact = (one.sections["unknown"] for one in judged)
    assert own == {**exact, "threshold": pytest.approx(exact["threshold"], rel=0.02)}


def test_exits_keep_the_samples_that_set_their_thresholds_apart(task: Task, loaded: OpenModel) -> None:
    plan = replace(plan_of(task, loaded), heads=HeadsPlan("with-tail", (Exit(1, 8),)))
    before, after = (training_selections(task, one) for one in (plan, plan.refitted(2, solve_again=False)))
    assert after[0].ids() == before[0].ids()
    assert after[1].partition == "local.val"
    folds = local_folds(*after[:2])
    assert len(folds) == len(after[0]) + len(after[1])
    assert len(np.unique(folds)) > 1
