"""A branch: the given tail stays, one trains, and a gate at the cut decides."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tuner_branch
from tests.runtime.bundles import trainable_bundle
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.lowering import TrainingSamples
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.bundle.format import MODEL, WEIGHTS, Bundle
from tuner.bundle.onnx_bytes import with_weights
from tuner.bundle.onnx_check import check_model
from tuner.bundle.tensors import read_tensors
from tuner.ort.session import LOGITS, Session
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import weight_bytes
from tuner.planner.device import nominal
from tuner.planner.price import price
from tuner.search.propose.lines import structure_of
from tuner.store.store import Store
from tuner.task import normalise
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_branch import KIND, TRAITS, Branch, Knobs
from tuner_branch.torch import BranchedTail, best_threshold
from tuner_testing.models.hosting import hosting
from tuner_testing.models.lowered import LoweredTail, made_up_model
from tuner_testing.models.made_up import made_up_task

USED = Knobs(use=True)


def test_the_given_tail_is_paid_for() -> None:
    plain = TrialPlan(example_model(4), example_task(), DataPlan(0.1), split=1)
    branch = Branch().apply(plain, USED)
    rates, tail = nominal(plain.model), 4 * sum(block.parameters for block in plain.model.blocks[1:])
    assert weight_bytes(branch) == weight_bytes(plain) + tail
    assert price(branch, rates).tensor_bytes > price(plain, rates).tensor_bytes
    assert price(branch, rates).loop_seconds > price(plain, rates).loop_seconds
    assert structure_of(branch) != structure_of(plain)


def test_there_is_none_without_global_data_or_for_the_head_alone() -> None:
    plain = TrialPlan(example_model(4), example_task(), split=1)
    for plan in (replace(plain, split=3), replace(plain, task=replace(plain.task, global_per_class=()))):
        assert Branch().apply(plan, USED) is plan


def test_the_threshold_is_the_one_that_gains_most() -> None:
    scores, gains = np.array([0.9, -0.5, 0.1, 0.4]), np.array([1.0, -1.0, -2.0, 0.5])
    assert best_threshold(scores, gains) == (1.5, 0.25)
    assert best_threshold(scores, -np.ones(4))[1] > 0.9


@pytest.mark.slow
def test_each_sample_takes_the_tail_of_its_domain_in_onnx_too(tmp_path: Path) -> None:
    plan = TrialPlan(made_up_model(), replace(task_info(made_up_task()), global_per_class=(1,) * 5), split=1)
    lowered = LoweredTail(Branch().apply(plan, USED), hosting(tuner_branch).extensions("torch"))
    lowered.train()
    tail, inputs, is_local = lowered.finish(), lowered.example.clone(), np.arange(len(lowered.example)) % 2 == 0
    assert isinstance(tail, BranchedTail)
    inputs[torch.from_numpy(~is_local)] += 3.0
    with torch.no_grad():
        own, given = tail.own(inputs).numpy(), lowered.given(inputs).numpy()
        labels = np.where(is_local, own.argmax(1), given.argmax(1))  # each tail is right in its own domain
        run = lambda module: module.eval()(inputs).numpy()  # noqa: E731 - in one place
        notes = tail.complete(
            TrainingSamples(run, lambda _: pytest.fail("nothing is read before the head"), labels, is_local)
        )
    assert "100.0% of the local ones and 0.0% of the global ones" in notes[0]
    wanted = np.where(is_local[:, None], own, given)
    np.testing.assert_allclose(lowered.logits(tail.eval()).numpy()[is_local], wanted[is_local], atol=1e-5)
    np.testing.assert_allclose(lowered.reopened(tail.state_dict()).eval()(inputs).detach(), wanted, atol=1e-5)
    write_onnx(tail, inputs, tmp_path / "tail.onnx", [LOGITS])
    check_model(tmp_path / "tail.onnx")
    session = Session(tmp_path / "tail.onnx")
    for rows in (slice(None), slice(0, None, 2), slice(1, None, 2), slice(0, 1), slice(1, 2)):  # one tail may have none
        np.testing.assert_allclose(session.logits(inputs[rows].numpy()), wanted[rows], atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_trial_is_scored_and_exported_with_both_tails(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task, folder, weights = digits(), tmp_path / "bundle", tmp_path / "weights.safetensors"
    session = opened(TorchBackend(), task)
    model = session.model
    recipe = RecipePlan(epochs=3, learning_rate=3e-3, solve_again=True)
    plain = TrialPlan(model, task_info(task), DataPlan(0.2), model.num_blocks - 2, recipe=recipe)
    plan = normal_form(Branch().apply(replace(plain, cache=CachePlan("cache", 16)), USED))
    outcome = session.train(Trial(plan, 1, Store(tmp_path / "store"), weights))
    assert outcome.values["local_accuracy"] > 0.85
    assert outcome.values["global_accuracy"] > 0.85
    assert any(note.startswith("branch: ") for note in outcome.notes)
    tail = sum(block.parameters for block in model.blocks[plan.split :])
    assert outcome.values["parameters"] > sum(block.parameters for block in model.blocks) + tail
    folder.mkdir()
    exported = opened(TorchBackend(), task).export(plan, weights, folder, trainable=False)
    for name, value in exported.checks.items():
        if name in outcome.values:
            assert value == pytest.approx(outcome.values[name], abs=0.02)


AGAIN = """
import sys
sys.modules.update(dict.fromkeys(("torch", "torchvision", "optuna", "scipy", "onnx", "onnxscript", "sklearn")))
import numpy as np
from tuner.runtime import Trainer
bundle, path, out = sys.argv[1:]
with np.load(path) as samples:
    new, labels = samples["new"], [str(label) for label in samples["labels"]]
trainer = Trainer(bundle, threads=1)
trainer.add(new, labels)
trainer.train(epochs=8)
trainer.save(out)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("adapted", [(), (TailEdit.of("low-rank", rank=4, scale=1.0),)], ids=["tail", "adapters"])
def test_its_own_tail_trains_again_where_no_torch_is_and_old_samples_stay_as_they_were(
    adapted: tuple[TailEdit, ...], tmp_path: Path
) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task, out = digits(), tmp_path / "again"
    bundle = trainable_bundle(task, tmp_path, shape=(*adapted, TailEdit(KIND, traits=TRAITS)))
    if not adapted:
        plain = trainable_bundle(task, tmp_path / "plain")
        sizes = [sum(file.stat().st_size for file in one.rglob("*") if file.is_file()) for one in (plain, bundle)]
        assert sizes[1] < 2 * sizes[0]
    new = np.stack([np.roll(task.local.val.load(row), 1, axis=1) for row in range(60)])  # a pixel further down
    labels = np.asarray(task.local.val.labels[:60])
    assert task.global_ is not None
    old = [task.global_.val.load(row) for row in range(120)]
    every = normalise(np.stack([*new, *old]), Bundle.open(bundle).input)
    np.savez(tmp_path / "samples.npz", new=new, labels=labels)
    code = [sys.executable, "-c", AGAIN, str(bundle), str(tmp_path / "samples.npz"), str(out)]
    done = subprocess.run(code, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    info = Bundle.open(out).info.train
    assert info is not None
    own = read_tensors(out / WEIGHTS, info.weights)
    silent = {f"tail.{name}": np.zeros_like(value) for name, value in own.items() if value.ndim}
    without = bytes(with_weights((bundle / MODEL).read_bytes(), silent))
    before, after, other = (
        Session(bundle / MODEL, 1, content=content).logits(every)
        for content in ((bundle / MODEL).read_bytes(), (out / MODEL).read_bytes(), without)
    )
    is_given = (before == other).all(axis=1)  # what the trained tail has no part in
    assert is_given[len(new) :].mean() > 0.5
    assert is_given[: len(new)].mean() < 0.5
    np.testing.assert_array_equal(after[is_given], before[is_given])
    right = [(logits[: len(new)].argmax(1) == labels).mean() for logits in (before, after)]
    assert right[1] > right[0]
