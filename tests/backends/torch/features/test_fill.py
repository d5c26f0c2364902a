"""Filling a store with the prefix's outputs: what is missing runs once, and no more."""

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.backends.torch.features.stores import Counting, access, digests
from tests.backends.torch.plans import plan_of
from tuner.backends.torch.features.engines import ORT, TORCH
from tuner.backends.torch.features.fill import fill, missing
from tuner.backends.torch.features.selection import training_selections, validation_selections
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.plugin.core import build_host
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.store.kept import choose_engine
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_a_filled_store_lacks_nothing_and_a_second_filling_runs_no_prefix(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded)
    assert missing(here, [plan]) == plan.train_samples + plan.task.local_val + plan.task.global_val
    assert fill(here, [plan]).records >= plan.train_samples
    assert missing(here, [plan]) == 0
    assert fill(here, [plan]).records == 0


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
def test_a_lower_width_needs_no_prefix_once_eight_bits_are_there(
    task: Task, loaded: OpenModel, tmp_path: Path, bits: int
) -> None:
    here = access(task, loaded, tmp_path / "store")
    fill(here, [plan_of(task, loaded, bits=8)])
    narrow = plan_of(task, loaded, bits=bits)
    assert fill(here, [narrow]).records == 0
    ids = [one for pick in training_selections(task, narrow) for one in pick.ids()]
    assert not here.file(narrow.split, bits).missing(ids)


def test_a_larger_fraction_adds_only_its_own_samples(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    here = access(task, loaded, tmp_path / "store")
    small, large = plan_of(task, loaded, alpha=0.02), plan_of(task, loaded, alpha=0.1)
    fill(here, [small])
    assert missing(here, [large]) == large.global_samples - small.global_samples


def test_one_pass_fills_several_cuts_alike(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    plans = [plan_of(task, loaded, split=split) for split in (1, 2, 3)]
    together, apart = access(task, loaded, tmp_path / "together"), access(task, loaded, tmp_path / "apart")
    fill(together, plans)
    for plan in plans:
        fill(apart, [plan])
    ids = [one for pick in validation_selections(task) for one in pick.ids()]
    for plan in plans:
        first, second = (one.file(plan.split, 16).read(ids) for one in (together, apart))
        assert np.array_equal(first, second)


def test_no_sample_runs_twice_though_scales_come_first(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    loads: list[int] = []
    counted = replace(task, local=replace(task.local, train=Counting(task.local.train, loads)))
    fill(access(counted, loaded, tmp_path / "store"), [plan_of(task, loaded)])
    assert sorted(loads) == list(range(len(task.local.train)))


@pytest.mark.parametrize("kind", [TORCH, ORT])
def test_a_deeper_cut_is_filled_from_exact_records_of_a_shallower_one_with_the_same_bytes(
    task: Task, loaded: OpenModel, tmp_path: Path, kind: str
) -> None:
    stepwise, direct = access(task, loaded, tmp_path / "stepwise"), access(task, loaded, tmp_path / "direct")
    for one in (stepwise, direct):
        choose_engine(one.store, loaded.info.fingerprint, 1, kind)
    shallow, deep = plan_of(task, loaded, bits=32, split=1), plan_of(task, loaded, bits=8, split=3)
    fill(stepwise, [shallow])
    pixels_read: list[int] = []
    counted = replace(task, local=replace(task.local, train=Counting(task.local.train, pixels_read)))
    filling = fill(access(counted, loaded, tmp_path / "stepwise"), [deep])
    assert not pixels_read, "local training samples were decoded again"
    assert filling.records
    assert not filling.seconds_per_sample, "a shortened pass says nothing of what filling an empty store costs"
    fill(direct, [deep])
    assert digests(stepwise, [deep]) == digests(direct, [deep])


def test_a_deeper_layer_of_the_network_is_not_touched_by_filling(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    before = state_hash(loaded.model)
    fill(access(task, loaded, tmp_path / "store"), [plan_of(task, loaded)])
    assert state_hash(loaded.model) == before


def test_twenty_kills_while_filling_leave_the_digest_of_an_undisturbed_filling(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan = plan_of(task, loaded)
    quiet, torn = access(task, loaded, tmp_path / "quiet"), access(task, loaded, tmp_path / "torn")
    fill(quiet, [plan])
    generator, killed = random.Random(0), 0
    with open_remote(build_host(), "digits", ["torch"]) as sessions:
        session = sessions["torch"]
        assert session.model == loaded.info  # now the libraries are loaded, and what is killed is a filling
        while killed < 20:
            kill_at = time.monotonic() + generator.uniform(0.03, 0.3)
            ended = session.try_fill([plan], torn.store, JobLimits(kill_at=kill_at))
            assert ended.verdict in {"deadline", "result"}, ended
            if ended.verdict == "result":
                # filled before the kill: take a part away and go on killing
                here = torn.file(plan.split, 8)
                here.forget(generator.sample(here.sample_ids(), 60))
            killed += ended.verdict == "deadline"
        session.fill([plan], torn.store)
    assert digests(torn, [plan]) == digests(quiet, [plan])


def test_another_preprocessing_or_another_model_reads_nothing(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded)
    fill(here, [plan])
    other_input = replace(task, input=replace(task.input, mean=(0.5,), std=(0.5,)))
    assert missing(access(other_input, load(other_input), tmp_path / "store"), [plan]) > 0
    changed = load(task)
    with torch.no_grad():
        next(changed.model.parameters()).add_(1e-6)
    assert missing(access(task, changed, tmp_path / "store"), [plan]) > 0


def test_a_pass_says_which_files_hold_all_and_what_ran_out_of_room_is_left_out(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan = plan_of(task, loaded)
    whole = fill(access(task, loaded, tmp_path / "store"), [plan])
    assert set(whole.folders) == {(plan.split, 8)}
    assert all(folder.exists() for folder in whole.folders[plan.split, 8])
    tight = access(task, loaded, tmp_path / "tight", cap=100_000, said=[])
    assert fill(tight, [plan]).folders == {}
