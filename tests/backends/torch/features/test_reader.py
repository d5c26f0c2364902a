"""Reading the prefix's outputs: what is not stored, or not whole, is computed again."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.backends.torch.features.stores import Counting, access
from tests.backends.torch.plans import plan_of
from tuner.backends.torch.features.engines import TORCH
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.prefix import Prefix, batches
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.model.open.load import OpenModel
from tuner.store.kept import write_scales
from tuner.store.store import Store
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_what_is_read_is_what_the_prefix_gives(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
    here, plan = access(task, loaded, tmp_path / "store"), plan_of(task, loaded, bits=32)
    fill(here, [plan])
    (pick, *_) = training_selections(task, plan)
    direct = Prefix(task, loaded, [plan.split], TORCH, 1)
    todo = list(batches(task, {"local.train": set(range(len(pick)))}))
    order = [index for batch in todo for index in batch.indices]
    expected = np.concatenate([outputs[plan.split] for _, outputs in direct.over(todo)])[np.argsort(order)]
    assert np.array_equal(Reader(here, plan.split, 32, [pick]).read(pick.ids()), expected)


def test_a_flipped_bit_is_noticed_computed_again_and_reported(task: Task, loaded: OpenModel, tmp_path: Path) -> None:
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


def test_a_full_store_computes_what_it_cannot_keep_and_reports_it(
    task: Task, loaded: OpenModel, tmp_path: Path
) -> None:
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
