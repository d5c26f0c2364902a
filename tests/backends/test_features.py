"""Filling and reading the prefix's outputs, with the real model of the built-in task."""

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import fx, nn

from tests.sessions import opened
from tuner.backends.base import Trial, silent
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.batches import batches
from tuner.backends.torch.features.engines import ORT, TORCH, prefix_engine
from tuner.backends.torch.features.fill import fill, missing
from tuner.backends.torch.features.prefix import Prefix
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import training_selections, validation_selections
from tuner.backends.torch.model.fingerprint import state_hash, structure_hash
from tuner.backends.torch.model.load import OpenModel, load
from tuner.backends.torch.trial.edits import edit_tail
from tuner.errors import TrainingError
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.store.engine_choice import choose_engine
from tuner.store.scales import write_scales
from tuner.store.store import Store
from tuner.task import Samples, Subset, Task
from tuner.task.digits import digits
from tuner.task.info import task_info

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield digits()


@pytest.fixture(scope="module")
def loaded(task: Task) -> OpenModel:
    return load(task)


def plan_of(task: Task, loaded: OpenModel, bits: int = 8, split: int = 2, alpha: float = 0.05) -> TrialPlan:
    return TrialPlan(
        model=loaded.info,
        task=task_info(task),
        data=DataPlan(alpha),
        split=split,
        cache=CachePlan("cache", bits),
        recipe=RecipePlan(epochs=2),
        runtime=RuntimePlan(threads=1),
    )


def access(
    task: Task, loaded: OpenModel, folder: Path, cap: int | None = None, said: list[str] | None = None
) -> Access:
    def report(progress: object) -> bool:
        if said is not None and isinstance(progress, dict) and "warning" in progress:
            said.append(progress["warning"])
        return False

    return Access(task, loaded, Store(folder, cap), 1, report if said is not None else silent)


class Counting(Subset):
    """Samples that note which of them are loaded."""

    def __init__(self, samples: Samples, loads: list[int]) -> None:
        super().__init__(samples, np.arange(len(samples)))
        self._loads = loads

    def load(self, index: int) -> npt.NDArray[np.generic]:
        self._loads.append(index)
        return super().load(index)


def digests(one: Access, plans: list[TrialPlan]) -> list[str]:
    wanted = {(plan.split, plan.cache.bits) for plan in plans} | {(plan.split, 16) for plan in plans}
    return [one.file(*at).digest() for at in sorted(wanted)]


def test_a_filled_store_lacks_nothing_and_a_second_filling_runs_no_prefix(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded)
    assert missing(here, [plan]) == plan.train_samples + plan.task.local_val + plan.task.global_val
    assert fill(here, [plan]).records >= plan.train_samples
    assert missing(here, [plan]) == 0
    assert fill(here, [plan]).records == 0


def test_what_is_read_is_what_the_prefix_gives(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded, bits=32)
    fill(here, [plan])
    (pick, *_) = training_selections(task, plan)
    direct = Prefix(task, loaded, [plan.split], TORCH, 1)
    todo = list(batches(task, {"local.train": set(range(len(pick)))}))
    expected = np.concatenate([outputs[plan.split] for _, outputs in direct.over(todo)])
    assert np.array_equal(Reader(here, plan.split, 32, [pick]).read(pick.ids()), expected)


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
            kill_at = time.monotonic() + generator.uniform(0.05, 0.5)
            ended = session.try_fill([plan], torn.store, JobLimits(kill_at=kill_at))
            assert ended.verdict in {"deadline", "result"}, ended
            if ended.verdict == "result":
                # filled before the kill: take a part away and go on killing
                here = torn.file(plan.split, 8)
                here.forget(generator.sample(here.sample_ids(), 60))
            killed += ended.verdict == "deadline"
        session.fill([plan], torn.store)
    assert digests(torn, [plan]) == digests(quiet, [plan])


def test_a_flipped_bit_is_noticed_computed_again_and_told(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    said: list[str] = []
    here, plan = access(task, loaded, tmp_path / "store", said=said), plan_of(task, loaded)
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


def test_a_full_store_computes_what_it_cannot_keep_and_says_so(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    said: list[str] = []
    plan = plan_of(task, loaded)
    here = access(task, loaded, tmp_path / "store", cap=40_000, said=said)
    fill(here, [plan])
    assert here.store.nbytes <= 40_000
    picks = training_selections(task, plan)
    ids = [one for pick in picks for one in pick.ids()]
    roomy = access(task, loaded, tmp_path / "roomy")
    fill(roomy, [plan])
    assert np.array_equal(Reader(here, 2, 8, picks).read(ids), Reader(roomy, 2, 8, picks).read(ids))
    assert here.store.nbytes <= 40_000
    assert said


def test_another_preprocessing_or_another_model_reads_nothing(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded)
    fill(here, [plan])
    other_input = replace(task, input=replace(task.input, mean=(0.5,), std=(0.5,)))
    assert missing(access(other_input, load(other_input), tmp_path / "store"), [plan]) > 0
    changed = load(task)
    with torch.no_grad():
        next(changed.model.parameters()).add_(1e-6)
    assert missing(access(task, changed, tmp_path / "store"), [plan]) > 0


def test_the_engines_agree(task: Task, loaded: OpenModel) -> None:
    sample = np.stack([task.local.val.load(index) for index in range(16)])
    ours, theirs = (prefix_engine(loaded, [1, 2, 3], kind, 1)(sample) for kind in (TORCH, "onnxruntime-fp32"))
    for first, second in zip(ours, theirs, strict=True):
        assert np.allclose(first, second, atol=1e-4)


def test_the_splits_have_names(task: Task) -> None:
    assert list(dict(task.partitions())) == [
        f"{domain}.{split}" for domain in ("local", "global") for split in ("train", "val", "test")
    ]


def test_weights_that_are_alike_under_another_activation_are_another_prefix() -> None:
    def network(activation: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        return fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), activation, nn.MaxPool2d(2, 2)))

    relu, same, tanh = network(nn.ReLU()), network(nn.ReLU()), network(nn.Tanh())
    wide = network(nn.LeakyReLU(0.1)), network(nn.LeakyReLU(0.2))
    assert state_hash(relu) == state_hash(tanh)
    assert relu.code == tanh.code  # why the code alone says too little
    assert structure_hash(relu) == structure_hash(same)
    assert len({structure_hash(one) for one in (relu, tanh, *wide)}) == 4


@pytest.mark.parametrize("bits", [8, 4])
def test_without_room_an_epoch_runs_the_prefix_once_a_sample(
    task: Task, loaded: OpenModel, tmp_path: Path, bits: int
) -> None:
    loads: list[int] = []
    counted = replace(task, local=replace(task.local, train=Counting(task.local.train, loads)))
    here, plan = access(counted, loaded, tmp_path / "store", said=[]), plan_of(task, loaded, bits=bits, alpha=0.0)
    fill(replace(here, store=Store(tmp_path / "other")), [plan])  # for the scales
    low, high, _ = replace(here, store=Store(tmp_path / "other")).scales(plan.split) or (None, None, "")
    assert low is not None
    assert high is not None
    write_scales(here.store, here.key(plan.split, 32), loaded.task_fingerprint, low, high)
    here.store.cap_bytes = here.store.nbytes
    loads.clear()
    (pick,) = training_selections(counted, plan)
    reader, ids = Reader(here, plan.split, bits, [pick]), pick.ids()
    full = Reader(replace(here, store=Store(tmp_path / "other")), plan.split, bits, [pick])
    for rows in np.random.default_rng(0).permutation(len(ids)).reshape(-1, 20):
        asked = [ids[row] for row in rows]
        assert np.allclose(reader.read(asked), full.read(asked), atol=0.2)
    assert sorted(loads) == list(range(len(ids)))


def test_lower_widths_without_room_are_made_from_eight_bits(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    loads: list[int] = []
    counted = replace(task, local=replace(task.local, train=Counting(task.local.train, loads)))
    here, plan = access(counted, loaded, tmp_path / "store", said=[]), plan_of(task, loaded, bits=8)
    fill(here, [plan])
    here.store.cap_bytes = here.store.nbytes
    (pick, *_) = training_selections(counted, plan)
    loads.clear()
    narrow = Reader(here, plan.split, 2, [pick]).read(pick.ids())
    here.store.cap_bytes = None
    fill(here, [plan_of(task, loaded, bits=2)])
    assert np.array_equal(narrow, Reader(here, plan.split, 2, [pick]).read(pick.ids()))
    assert not loads


def test_a_pass_says_which_files_hold_all_and_what_ran_out_of_room_is_left_out(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
    plan = plan_of(task, loaded)
    whole = fill(access(task, loaded, tmp_path / "store"), [plan])
    assert set(whole.folders) == {(plan.split, 8)}
    assert all(folder.exists() for folder in whole.folders[plan.split, 8])
    tight = access(task, loaded, tmp_path / "tight", cap=100_000, said=[])
    assert fill(tight, [plan]).folders == {}


def test_weights_that_are_not_numbers_are_not_scored(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    plan = plan_of(task, loaded)
    plan = replace(plan, recipe=replace(plan.recipe, optimiser="sgd", learning_rate=1e45, epochs=1, batch_size=256))
    session = opened(TorchBackend(), task)
    with pytest.raises(TrainingError, match=r"lower recipe\.learning_rate"):
        session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "w"))


def test_an_edit_that_no_plugin_realises_is_told(task: Task, loaded: OpenModel) -> None:
    plan = replace(plan_of(task, loaded), shape=(TailEdit("dropout"),))
    with pytest.raises(TrainingError, match="no installed plugin realises the plan's edit 'dropout'"):
        edit_tail(loaded.tail(plan.split), plan, {})
