"""Filling a store with the prefix's outputs, and reading them: what is missing runs once, what is damaged once more."""

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.backends.torch.features.stores import Counting, access, digests
from tests.backends.torch.plans import places_in, plan_of
from tuner.backends.torch.features import prefix
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.engines import ORT, TORCH, exported_prefix, prefix_engine
from tuner.backends.torch.features.fill import fill, missing
from tuner.backends.torch.features.prefix import Prefix, batches
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import training_selections, validation_selections
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.threads import ThreadChoice
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.store.kept import choose_engine, write_scales
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow


@pytest.fixture
def here(task: Task, loaded: OpenModel, tmp_path: Path) -> Access:
    return access(task, loaded, tmp_path / "store")


@pytest.fixture(scope="module")
def plan(task: Task, loaded: OpenModel) -> TrialPlan:
    return plan_of(task, loaded)


def counting(here: Access, loads: list[int]) -> Access:
    """Return access that notes which local training samples are loaded."""
    local = replace(here.task.local, train=Counting(here.task.local.train, loads))
    return replace(here, task=replace(here.task, local=local))


def test_a_filled_store_lacks_nothing_but_what_a_larger_fraction_adds(
    here: Access, plan: TrialPlan, task: Task, loaded: OpenModel
) -> None:
    assert missing(here, [plan]) == plan.train_samples + plan.task.local_val + plan.task.global_val
    loads: list[int] = []
    weights = state_hash(loaded.model)
    whole = fill(counting(here, loads), [plan])
    assert whole.records >= plan.train_samples
    assert state_hash(loaded.model) == weights
    assert sorted(loads) == list(range(len(task.local.train))), "no sample runs twice, though scales come first"
    assert set(whole.folders) == {(plan.split, 8)}
    assert all(folder.exists() for folder in whole.folders[plan.split, 8])
    assert missing(here, [plan]) == 0
    ids = [one for pick in training_selections(task, plan) for one in pick.ids()]
    for bits in (8, 4, 2, 1):
        assert fill(here, [plan_of(task, loaded, bits=bits)]).records == 0
        assert not here.file(plan.split, bits).missing(ids)
    larger = plan_of(task, loaded, alpha=0.1)
    assert missing(here, [larger]) == larger.global_samples - plan.global_samples > 0


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
    filling = fill(counting(stepwise, pixels_read), [deep])
    assert not pixels_read, "local training samples were decoded again"
    assert filling.records
    assert not filling.seconds_per_sample, "a shortened pass says nothing of what filling an empty store costs"
    fill(direct, [deep])
    assert digests(stepwise, [deep]) == digests(direct, [deep])


def test_twenty_kills_while_filling_leave_the_digest_of_an_undisturbed_filling(
    here: Access, plan: TrialPlan, task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    quiet, torn = here, access(task, loaded, tmp_path / "torn")
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
                records = torn.file(plan.split, 8)
                records.forget(generator.sample(records.sample_ids(), 60))
            killed += ended.verdict == "deadline"
        session.fill([plan], torn.store)
    assert digests(torn, [plan]) == digests(quiet, [plan])


def test_another_preprocessing_or_another_model_reads_nothing(
    here: Access, plan: TrialPlan, task: Task, tmp_path: Path
) -> None:
    fill(here, [plan])
    other_input = replace(task, input=replace(task.input, mean=(0.5,), std=(0.5,)))
    assert missing(access(other_input, load(other_input), tmp_path / "store"), [plan]) > 0
    changed = load(task)
    with torch.no_grad():
        next(changed.model.parameters()).add_(1e-6)
    assert missing(access(task, changed, tmp_path / "store"), [plan]) > 0


def test_what_is_read_is_what_the_prefix_gives(here: Access, task: Task, loaded: OpenModel) -> None:
    plan = plan_of(task, loaded, bits=32)
    fill(here, [plan])
    (pick, *_) = training_selections(task, plan)
    direct = Prefix(task, loaded, [plan.split], TORCH, 1)
    todo = list(batches(task, {"local.train": set(range(len(pick)))}))
    order = [index for batch in todo for index in batch.indices]
    expected = np.concatenate([outputs[plan.split] for _, outputs in direct.over(todo)])[np.argsort(order)]
    assert np.array_equal(Reader(here, plan.split, 32, [pick]).read(pick.ids()), expected)


def test_a_flipped_bit_is_noticed_computed_again_and_reported(
    plan: TrialPlan, task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    said: list[str] = []
    here = access(task, loaded, tmp_path / "store", said=said)
    fill(here, [plan])
    picks = training_selections(task, plan)
    ids = [one for pick in picks for one in pick.ids()]
    right = Reader(here, plan.split, 8, picks).read(ids)
    generator = random.Random(1)
    path = here.store.path(here.file(plan.split, 8).key) / "data"
    for _ in range(20):
        content = bytearray(path.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        assert np.array_equal(Reader(here, plan.split, 8, picks).read(ids), right)
    assert any("computed again" in line for line in said)


def test_a_full_store_computes_what_it_cannot_keep_and_reports_it(
    here: Access, plan: TrialPlan, task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    said: list[str] = []
    roomy, here = here, access(task, loaded, tmp_path / "tight", cap=40_000, said=said)
    assert fill(here, [plan]).folders == {}
    assert here.store.nbytes <= 40_000
    picks = training_selections(task, plan)
    ids = [one for pick in picks for one in pick.ids()]
    fill(roomy, [plan])
    assert np.array_equal(Reader(here, 2, 8, picks).read(ids), Reader(roomy, 2, 8, picks).read(ids))
    assert here.store.nbytes <= 40_000
    assert said


@pytest.mark.parametrize("bits", [8, 4])
def test_without_room_an_epoch_runs_the_prefix_once_a_sample(
    here: Access, task: Task, loaded: OpenModel, tmp_path: Path, bits: int
) -> None:
    loads: list[int] = []
    here, plan = counting(here, loads), plan_of(task, loaded, bits=bits, alpha=0.0)
    fill(replace(here, store=Store(tmp_path / "other")), [plan])  # for the scales
    low, high, _ = replace(here, store=Store(tmp_path / "other")).scales(plan.split) or (None, None, "")
    assert low is not None
    assert high is not None
    write_scales(here.store, here.key(plan.split, 32), loaded.task_fingerprint, low, high)
    here.store.cap_bytes = here.store.nbytes
    loads.clear()
    (pick,) = training_selections(here.task, plan)
    reader, ids = Reader(here, plan.split, bits, [pick]), pick.ids()
    full = Reader(replace(here, store=Store(tmp_path / "other")), plan.split, bits, [pick])
    for rows in np.random.default_rng(0).permutation(len(ids)).reshape(-1, 20):
        asked = [ids[row] for row in rows]
        assert np.allclose(reader.read(asked), full.read(asked), atol=0.2)
    assert sorted(loads) == list(range(len(ids)))


def test_lower_widths_without_room_are_made_from_eight_bits(
    here: Access, plan: TrialPlan, task: Task, loaded: OpenModel
) -> None:
    loads: list[int] = []
    here = counting(here, loads)
    fill(here, [plan])
    here.store.cap_bytes = here.store.nbytes
    (pick, *_) = training_selections(here.task, plan)
    loads.clear()
    narrow = Reader(here, plan.split, 2, [pick]).read(pick.ids())
    here.store.cap_bytes = None
    fill(here, [plan_of(task, loaded, bits=2)])
    assert np.array_equal(narrow, Reader(here, plan.split, 2, [pick]).read(pick.ids()))
    assert not loads


def test_the_engines_agree(task: Task, loaded: OpenModel) -> None:
    sample = np.stack([task.local.val.load(index) for index in range(16)])
    ours, theirs = (prefix_engine(loaded, [1, 2, 3], kind, 1)(sample) for kind in (TORCH, "onnxruntime-fp32"))
    for first, second in zip(ours, theirs, strict=True):
        assert np.allclose(first, second, atol=1e-4)
    assert places_in(exported_prefix(loaded).parent) == {}


def test_the_prefix_tries_several_numbers_of_threads_and_computes_the_same(
    task: Task, loaded: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    class Noted(ThreadChoice):
        def __enter__(self) -> None:
            super().__enter__()
            used.append(self.threads)

    monkeypatch.setattr(prefix, "ThreadChoice", Noted)
    todo = list(batches(task, {"local.train": set(range(160))}))
    one, both = (
        [outputs[2] for _, outputs in Prefix(task, loaded, [2], TORCH, threads).over(todo)] for threads in (1, 2)
    )
    assert all(np.array_equal(first, second) for first, second in zip(one, both, strict=True))
    assert set(used[: len(todo)]) == {1}
    assert set(used[len(todo) :]) == {1, 2}


def test_one_model_at_two_input_sizes_has_two_exported_prefixes(loaded: OpenModel) -> None:
    first, *others = loaded.info.blocks
    larger = loaded.with_info(replace(loaded.info, blocks=(replace(first, in_shape=(1, 12, 12)), *others)))
    for model, size in ((loaded, 8), (larger, 12), (loaded, 8)):
        sample = np.random.default_rng(size).random((4, 1, size, size), np.float32)
        ours, theirs = (prefix_engine(model, [2], kind, 1)(sample)[0] for kind in (TORCH, ORT))
        assert np.allclose(ours, theirs, atol=1e-4)
