"""Trials whose frozen blocks compute in int8: trained, scored and exported on the same blocks."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.backends.torch.plans import plan_of
from tests.sessions import opened
from tuner.arrays import Floats
from tuner.backends.base import Exported, Session, Trial, silent
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.engines import INT8, cut_name, exported_prefix
from tuner.backends.torch.features.int8 import int8_prefix, prediction_costs
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, whole_partition
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.onnx.quantise import part_of
from tuner.backends.torch.trial.inputs import plan_prefix
from tuner.bundle.format import MODEL, UNKNOWN, WEIGHTS
from tuner.ort.session import Session as OrtSession
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.store.calibrated import MOST_BLOCKS, blocks_file, calibrated_blocks
from tuner.store.store import Store
from tuner.task import Task
from tuner_store.commands import format_store
from tuner_store.store import clear_store, store_files

pytestmark = pytest.mark.slow
IN_INT8 = RuntimePlan(precision="int8", int8_loss=1.0)


@dataclass(frozen=True)
class Carried:
    """A trial in int8, carried out and exported."""

    session: Session
    model: OpenModel
    plan: TrialPlan
    store: Store
    outcome: Outcome
    exported: Exported
    progress: Sequence[Mapping[str, Any]]
    oldest: Path
    bundle: Path


@pytest.fixture(scope="module")
def carried(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Carried:
    folder = tmp_path_factory.mktemp("int8-trial")
    session = opened(TorchBackend(), task)
    model = load(task)
    plan = replace(plan_of(task, model), runtime=IN_INT8, recipe=RecipePlan(epochs=2))
    store, bundle = Store(folder / "store"), folder / "bundle"
    bundle.mkdir()
    progress = list[Mapping[str, Any]]()
    others = [blocks_file("another", f"{number}") for number in range(MOST_BLOCKS)]
    for number, path in enumerate(others):
        path.touch()
        os.utime(path, (number, number))

    def report(given: Mapping[str, Any]) -> bool:
        progress.append(given)
        return False

    session.fill([plan], store, report)
    outcome = session.train(Trial(plan, 0, store, folder / WEIGHTS))
    exported = session.export(plan, folder / WEIGHTS, bundle, trainable=False)
    return Carried(session, model, plan, store, outcome, exported, progress, others[0], bundle)


def pixels(task: Task) -> Floats:
    return task.batch(task.local.val, range(20))


def test_its_features_are_those_that_its_bundle_computes(carried: Carried, task: Task) -> None:
    access = Access(task, carried.model, carried.store, carried.plan.runtime.threads, silent, "int8")
    selection = whole_partition(task, "local.val")
    first = Selection(selection.partition, selection.samples, selection.indices[:20])
    stored = Reader(access, carried.plan.split, VALIDATION_BITS, [first]).read(first.ids())
    computed = OrtSession(carried.bundle / MODEL, 1).features(pixels(task))
    float32 = OrtSession(part_of(exported_prefix(access.loaded), [cut_name(2)]).SerializeToString(), 1)
    listed = format_store(store_files(carried.store.folder), calibrated_blocks())
    assert listed.count(f"  {INT8}-") == len(carried.store.list()) > 1
    assert "frozen blocks in int8, for all stores: 8 files, " in listed
    assert np.allclose(stored, computed, rtol=1e-3, atol=1e-6)  # records of 16 bits
    without_store = plan_prefix(task, carried.model, replace(carried.plan, cache=CachePlan()))
    assert np.array_equal(without_store(torch.from_numpy(pixels(task))).numpy(), computed)
    assert not np.allclose(float32.run(pixels(task), cut_name(2))[0], computed, rtol=1e-3, atol=1e-3)


def test_quantising_ends_where_it_is_asked_to(carried: Carried, task: Task, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path))
        filling = carried.session.fill([carried.plan], Store(tmp_path / "store"), lambda _: True)
        assert filling.stopped
        assert filling.records == calibrated_blocks().files == 0


def test_quantising_shows_its_progress_and_what_was_used_longest_ago_makes_room(carried: Carried) -> None:
    seen = [one for one in carried.progress if "quantised" in one]
    assert len(seen) > 1
    assert seen[-1]["quantised"] == seen[-1]["of"]
    assert calibrated_blocks().files == MOST_BLOCKS
    assert not carried.oldest.exists()


def test_its_bundle_has_the_accuracy_and_the_size_that_the_trial_measured(carried: Carried, task: Task) -> None:
    values, model, exported = carried.outcome.values, carried.model, carried.exported
    for name in ("local_accuracy", "global_accuracy"):
        assert exported.checks[name] == pytest.approx(values[name], abs=0.005)
    assert exported.sections["int8"]["float_layers"] == 0
    asked_for = {UNKNOWN}  # only by who asks what is unknown
    files = sum(path.stat().st_size for path in carried.bundle.iterdir() if path.name not in asked_for)
    assert values["bundle_bytes"] == pytest.approx(files, rel=0.1)
    assert 0 < values["mean_latency_seconds"] != values["whole_latency_seconds"] > 0
    costs = prediction_costs(task, model, carried.plan.split)  # measured once: trials do not differ by timing noise
    assert costs.values == {name: values[name] for name in costs.values}


def test_the_blocks_in_int8_are_deleted_with_the_store(
    carried: Carried, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = int8_prefix(task, carried.model)
    monkeypatch.setenv("TUNER_CACHE", str(shutil.copytree(before.parent.parent, tmp_path / "cache")))
    path = int8_prefix(task, carried.model)
    size = path.stat().st_size
    assert clear_store(tmp_path / "store") >= size > 0
    assert not path.exists()
    assert before.exists()  # other tests use them, in whatever order
