"""Exits trained, calibrated, scored and exported, on the built-in digits; and their patience."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from tests.backends.torch.plans import carried_out, places_in
from tests.runtime.bundles import exported_bundle
from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.selection import (
    training_selections,
    validation_selections,
    withheld_selection,
)
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.model.open.load import load
from tuner.bundle.info import Section
from tuner.errors import BundleError, PluginError, TrainingError, TunerError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, DataPlan, EditTraits, RecipePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.device import FLOAT_BYTES
from tuner.results.records.trial import Outcome
from tuner.runtime import Personaliser
from tuner.runtime.infer.chain import Chain
from tuner.store.store import Store
from tuner.task import ArraySamples, Domain, InputSpec, Samples, Subset, Task, normalise
from tuner.task.info import task_info
from tuner_exits.torch.heads import build_heads
from tuner_exits.torch.weights import METADATA

pytestmark = pytest.mark.slow
BACKEND = TorchBackend()
LABELLED: dict[str, Any] = {"supervised": 1.0, "distilled": 0.0, "against": "best"}


def plan_of(
    task: Task, model: ModelInfo, mode: Any = "exits-only", bits: int | None = 8, epochs: int = 8, **heads: Any
) -> TrialPlan:
    return normal_form(
        TrialPlan(
            model,
            task_info(task),
            DataPlan(0.05),
            3,
            heads=HeadsPlan(mode, (Exit(1, 8), Exit(2, 16)), **heads),
            cache=CachePlan() if bits is None else CachePlan("cache", bits),
            recipe=RecipePlan(epochs=epochs, learning_rate=1e-2),
        )
    )


def exit_metadata(weights: Path) -> dict[str, Any]:
    with safe_open(weights, "pt") as file:
        return dict(json.loads(file.metadata()[METADATA]))


def test_a_plan_with_exits_needs_the_plugin(
    task: Task, model: ModelInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-exits")
    with pytest.raises(
        PluginError, match="no plugin for early exits is switched on: see `tuner plugins`, and TUNER_PLUGINS"
    ):
        carried_out(task, plan_of(task, model), tmp_path)


@pytest.mark.parametrize("bits", [8, None])
def test_exits_learn_the_users_digits_and_the_model_stays_as_it_was(
    task: Task, model: ModelInfo, tmp_path: Path, bits: int | None
) -> None:
    plan = plan_of(task, model, bits=bits, **LABELLED)
    outcome = carried_out(task, plan, tmp_path)
    values = outcome.values
    assert values["local_accuracy"] > 0.85
    assert values["final_local_accuracy"] == 0.0  # the given model knows none of them
    assert values["mean_flops"] < 0.7 * sum(block.flops for block in model.blocks)
    assert 0 < values["mean_latency_seconds"] < 1
    assert len(outcome.epochs) == 8
    assert len(outcome.notes) == 2
    assert not any(name.startswith("exits.9") for name in load_file(tmp_path / "weights.safetensors"))


def test_without_labels_to_learn_from_exits_come_to_agree_with_the_final_head(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    assert task.global_ is not None
    unlabelled = replace(task, local=replace(task.global_, test=None), labelled=False)  # digits it knows
    plan = plan_of(unlabelled, model, supervised=1.0)
    assert plan.heads.supervised == 0.0
    values = carried_out(unlabelled, plan, tmp_path).values
    assert values["final_local_accuracy"] == 1.0  # agreement with itself
    assert values["local_accuracy"] > 0.95
    assert values["mean_flops"] < sum(block.flops for block in model.blocks)
    assert opened(BACKEND, unlabelled).untouched(Store(tmp_path / "store"), 1).values["local_accuracy"] == 1.0
    assert "labels" in (BACKEND.supports(replace(plan, heads=HeadsPlan(), split=3)) or "")


def test_with_a_tail_exits_learn_from_the_new_tail(task: Task, model: ModelInfo, tmp_path: Path) -> None:
    outcome = carried_out(task, plan_of(task, model, "with-tail", supervised=1.0), tmp_path)
    assert outcome.values["final_local_accuracy"] > 0.9
    assert outcome.values["local_accuracy"] > 0.9
    assert len(outcome.epochs) == 16
    assert any(not name.startswith("exits.") for name in load_file(tmp_path / "weights.safetensors"))


def hot(samples: Samples) -> ArraySamples:
    """Return samples of the built-in digits with a one-hot row in place of each label."""
    arrays = np.stack([samples.load(index) for index in range(len(samples))])
    return ArraySamples(arrays, np.eye(10, dtype=np.float32)[samples.labels], InputSpec(kind="arrays"))


def test_exits_learn_several_labels_a_sample_and_let_samples_exit_early(task: Task, tmp_path: Path) -> None:
    local = Domain(hot(task.local.train), hot(task.local.val))
    several = replace(
        task, loss="multi-label", local=local, global_=None, model=replace(task.model, pretrain=None), head_rows=(0, 1)
    )
    described = opened(BACKEND, several).model
    plan = plan_of(several, described, epochs=20, supervised=1.0, against="best")
    values = carried_out(several, plan, tmp_path).values
    assert values["local_accuracy"] > 0.75  # AUC; of a guess 0.5
    assert values["mean_flops"] < sum(block.flops for block in described.blocks)
    exported = opened(BACKEND, several).export(
        plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=False
    )
    assert exported.checks["local_accuracy"] == pytest.approx(values["local_accuracy"], abs=0.1)


def test_calibration_samples_train_nothing_and_are_no_validation_samples(task: Task, model: ModelInfo) -> None:
    plan = plan_of(task, model)
    held = withheld_selection(task)
    ids = set(held.ids())
    assert len(held) == 51
    assert not ids & {one for pick in training_selections(task, plan) for one in pick.ids()}
    assert not ids & {one for pick in validation_selections(task) for one in pick.ids()}
    without = replace(plan, heads=HeadsPlan(), split=3)
    assert len(training_selections(task, without)[0]) == len(training_selections(task, plan)[0]) + len(held)


def test_one_class_can_be_calibrated_on_and_too_few_samples_are_reported_in_one_line(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    sevens = [int(index) for index in np.flatnonzero(task.local.train.labels == 7)[:5]]
    alone = replace(task, local=replace(task.local, train=Subset(task.local.train, sevens)))
    values = carried_out(alone, plan_of(alone, model, epochs=2, **LABELLED), tmp_path).values
    assert 0 <= values["local_accuracy"] <= 1
    first = [int(np.flatnonzero(task.local.train.labels == digit)[0]) for digit in (7, 8)]
    few = replace(task, local=replace(task.local, train=Subset(task.local.train, first)))
    plan = plan_of(few, model, bits=None)
    with pytest.raises(TunerError, match=r"no class has two samples \(2 in all\): add samples, or leave exits out"):
        opened(BACKEND, few).train(Trial(plan, 1, Store(tmp_path / "store"), tmp_path / "w"))


def test_exits_whose_logits_are_not_finite_are_not_scored(
    task: Task, model: ModelInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: TrialPlan) -> nn.ModuleList:
        heads = build_heads(plan)
        heads[1].register_forward_hook(lambda head, _, logits: logits if head.training else logits * float("nan"))
        return heads

    monkeypatch.setattr("tuner_exits.torch.procedure.build_heads", broken)
    plan = plan_of(task, model, epochs=1)
    with pytest.raises(TrainingError, match=r"every exit and the final head must give finite logits .* for 51 of 51"):
        opened(BACKEND, task).train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "w"))


def test_a_trial_that_is_stopped_on_request_is_scored_all_the_same(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    plan, store = plan_of(task, model, **LABELLED), Store(tmp_path / "store")
    opened(BACKEND, task).fill([plan], store)
    outcome = opened(BACKEND, task).train(Trial(plan, 1, store, tmp_path / "w", lambda progress: "step" in progress))
    assert "stopped on request" in outcome.stopped
    assert 0 <= outcome.values["local_accuracy"] <= 1


def test_exits_learn_from_a_tail_that_grows_and_costs_are_those_of_its_widths(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    grows = EditTraits(changes_shapes=True, trains_norms=True, traceable=False, keeps_weights=False)
    edit = TailEdit.of("grow-scratch", grows, start=0.2, controller="fixed")
    exits = HeadsPlan("with-tail", (Exit(1, 0), Exit(2, 0)), ridge=10.0)
    plan = normal_form(replace(plan_of(task, model, "with-tail"), split=2, shape=(edit,), heads=exits))
    values = carried_out(task, plan, tmp_path).values
    assert values["flops"] < 0.7 * sum(block.flops for block in model.blocks)
    assert values["parameters"] < 0.5 * sum(block.parameters for block in model.blocks)
    assert values["mean_flops"] <= values["flops"]
    exported = opened(BACKEND, task).export(plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=False)
    assert exported.checks["largest_logit_difference"] < 1e-4
    assert exported.checks["global_accuracy"] == pytest.approx(values["global_accuracy"], abs=0.02)
    assert Section.EVOLVED in exported.sections
    joint = replace(plan, heads=replace(plan.heads, joint=0.3))
    assert "exits train together with a tail as the model has it" in (BACKEND.supports(joint) or "")


@pytest.mark.parametrize("mode", ["exits-only", "with-tail"])
def test_a_bundle_with_exits_is_a_chain_that_reports_where_samples_exit(
    task: Task, model: ModelInfo, tmp_path: Path, mode: str
) -> None:
    plan = plan_of(task, model, mode, supervised=1.0, against="best")
    out = exported_bundle(task, tmp_path, plan, BACKEND, Store(tmp_path / "store"), trainable=mode == "exits-only")
    kept = exit_metadata(tmp_path / "trained.safetensors")["kept"]
    assert places_in(out) == {}
    personaliser = Personaliser(out)
    exits = personaliser.bundle.info.exits
    assert exits is not None
    assert exits.segments == tuple(f"segments/{number}.onnx" for number in range(len(kept) + 1))
    assert len(exits.thresholds) == len(kept)
    assert list(exits.shares) == sorted(exits.shares)
    assert exits.shares[-1] == 1.0
    assert not (out / "model.onnx").exists()
    predictions = [personaliser.predict(task.local.val.load(index)) for index in range(len(task.local.val))]
    right = np.mean([one.label == str(label) for one, label in zip(predictions, task.local.val.labels, strict=True)])
    assert right == pytest.approx(personaliser.bundle.info.scores.from_pixels["local_accuracy"])
    rates = np.bincount([one.exit for one in predictions], minlength=len(kept) + 1) / len(predictions)
    scores = personaliser.bundle.info.scores.from_pixels
    assert rates.tolist() == [scores[f"exit{number}_share"] for number in range(len(rates))]
    stored = [load_file(path) for path in sorted(out.glob("*.safetensors"))]
    whole = sum(one.numel() * 4 for state in stored for one in state.values())
    files = sum((out / name).stat().st_size for name in exits.segments)
    assert files < 1.1 * whole + 30_000 * len(exits.segments)  # each weight once


def test_with_exits_alone_the_final_logits_are_the_given_models(task: Task, model: ModelInfo, tmp_path: Path) -> None:
    plan = plan_of(task, model, **LABELLED)
    before = load(task)
    hashed = state_hash(before.model)
    batch = normalise(np.stack([task.local.val.load(index) for index in range(8)]), task.input)
    with torch.inference_mode():
        given = before.model(torch.from_numpy(batch))
    carried_out(task, plan, tmp_path)
    opened(BACKEND, task).export(plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=False)
    after = load(task)
    after.model.load_state_dict(load_file(tmp_path / "out" / "weights.safetensors"))
    assert state_hash(after.model) == hashed
    with torch.inference_mode():
        assert torch.equal(after.model(torch.from_numpy(batch)), given)
    segments = sorted((tmp_path / "out" / "segments").iterdir())
    np.testing.assert_allclose(Chain(segments, len(task.labels), threads=1).every(batch)[-1], given.numpy(), atol=1e-4)


def test_when_every_exit_is_pruned_the_chain_is_the_model_alone(task: Task, model: ModelInfo, tmp_path: Path) -> None:
    plan = plan_of(task, model)  # the final head knows none of the user's digits, and so its exits do not
    outcome = carried_out(task, plan, tmp_path)
    assert outcome.values["mean_flops"] == sum(block.flops for block in model.blocks)
    exported = opened(BACKEND, task).export(plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=True)
    assert "train" not in exported.sections
    assert list(exported.sections["exits"]["segments"]) == ["segments/0.onnx"]
    assert list(exported.sections["exits"]["thresholds"]) == []
    plain = tmp_path / "plain"
    carried_out(task, replace(plan, heads=HeadsPlan(), split=3), plain)
    with pytest.raises(BundleError, match="holds no exits"):
        opened(BACKEND, task).export(plan, plain / "weights.safetensors", _folder(plain), trainable=False)


def test_what_no_sample_reaches_is_dropped_where_that_is_asked_for(
    task: Task, model: ModelInfo, tmp_path: Path
) -> None:
    plan = plan_of(task, model, **LABELLED)
    heads = replace(plan.heads, exits=(Exit(1, 0), Exit(2, 0)), ridge=1.0, tolerance=1.0, against="best")
    plan = normal_form(replace(plan, heads=heads))
    carried_out(task, plan, tmp_path)
    weights, session = tmp_path / "weights.safetensors", opened(BACKEND, task)
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder in (whole, part):
        folder.mkdir()
    before = session.export(plan, weights, whole, trainable=False)
    dropping = replace(plan, heads=replace(plan.heads, drops=True))
    after = session.export(dropping, weights, part, trainable=False)
    assert before.checks["exit0_share"] == after.checks["exit0_share"] == 1.0
    assert after.checks["local_accuracy"] == before.checks["local_accuracy"]
    assert after.checks["mean_flops"] == pytest.approx(before.checks["mean_flops"])
    assert list(after.sections["exits"]["segments"]) == ["segments/0.onnx"]
    batch = normalise(np.stack([task.local.val.load(index) for index in range(8)]), task.input)
    chains = [Chain(sorted((one / "segments").iterdir()), len(task.labels), threads=1) for one in (whole, part)]
    np.testing.assert_allclose(chains[1].every(batch)[0], chains[0].every(batch)[0], atol=1e-4)
    sizes = [sum(path.stat().st_size for path in one.rglob("*") if path.is_file()) for one in (whole, part)]
    assert sizes[1] < sizes[0] / 3
    peaks = before.sections["exits"]["peak_bytes"]
    assert list(after.sections["exits"]["peak_bytes"]) == list(peaks[:1])
    assert len(peaks) == 2
    weights_bytes = FLOAT_BYTES * sum(block.parameters for block in model.blocks)
    assert model.blocks[0].parameters * FLOAT_BYTES + batch[:1].nbytes < peaks[0] < weights_bytes < peaks[1]


def _folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_exits_in_closed_form_learn_the_users_digits_at_once(task: Task, model: ModelInfo, tmp_path: Path) -> None:
    plan = plan_of(task, model, **LABELLED)
    heads = replace(plan.heads, exits=(Exit(1, 0), Exit(2, 0)), ridge=1.0, confidence=0.95)
    plan = normal_form(replace(plan, heads=heads))
    assert plan.recipe == RecipePlan(epochs=1)
    assert len(training_selections(task, plan)[0]) == len(task.local.train)  # none is withheld
    values = carried_out(task, plan, tmp_path).values
    assert values["local_accuracy"] > 0.85
    exported = opened(BACKEND, task).export(plan, tmp_path / "weights.safetensors", _folder(tmp_path), trainable=True)
    assert exported.checks["local_accuracy"] == pytest.approx(values["local_accuracy"], abs=0.02)
    assert not list((tmp_path / "out" / "train").glob("exit?.onnx"))  # a round solves: there is no step
    policy, trial = exported.sections["exits"], exit_metadata(tmp_path / "weights.safetensors")
    assert policy["calibration_samples"] == len(task.local.train)
    for key in ("thresholds", "temperatures"):  # as in the trial: all samples have been seen
        assert list(policy[key]) == trial[key]
    assert len(policy["temperatures"]) == len(policy["segments"])


def patient(task: Task, folder: Path, mode: Any = "exits-only", **recipe: Any) -> tuple[Outcome, dict[str, Any]]:
    """Train with a recipe; return the outcome and the weights."""
    plan = plan_of(task, opened(BACKEND, task).model, mode, **LABELLED)
    given: dict[str, Any] = {"epochs": 6, "learning_rate": 1e-2, **recipe}
    outcome = carried_out(task, normal_form(replace(plan, recipe=RecipePlan(**given))), folder)
    return outcome, load_file(folder / "weights.safetensors")


def test_exits_that_no_longer_improve_end_early(task: Task, tmp_path: Path) -> None:
    outcome, _ = patient(task, tmp_path / "alone", learning_rate=1e-9, patience=2)
    scores = [epoch["local_accuracy"] for epoch in outcome.epochs]
    assert len(scores) == int(np.argmax(scores)) + 3 < 6
    assert outcome.stopped == f"no better local score of the exits for 2 epochs, after epoch {len(scores)}"
    outcome, weights = patient(task, tmp_path / "with tail", "with-tail", learning_rate=1e-9, patience=1)
    ended = re.fullmatch(
        r"no better local score for 1 epochs, after epoch (\d); "
        r"no better local score of the exits for 1 epochs, after epoch (\d)",
        outcome.stopped,
    )
    assert ended is not None
    assert len(outcome.epochs) == sum(map(int, ended.groups())), "exits train though their tail's patience was spent"
    assert weights


def test_patience_watches_the_exits_own_accuracy_and_changes_no_weight_where_it_is_not_spent(
    task: Task, tmp_path: Path
) -> None:
    outcome, weights = patient(task, tmp_path / "patient", epochs=4, patience=2)
    assert len(outcome.epochs) == 4, "this seed improves until the last epoch"
    own = [outcome.values[f"exit{number}_local_accuracy"] for number in range(2)]
    assert outcome.epochs[-1]["local_accuracy"] == pytest.approx(np.mean(own))
    plain, others = patient(task, tmp_path / "plain", epochs=4)
    assert [epoch["loss"] for epoch in outcome.epochs] == [epoch["loss"] for epoch in plain.epochs]
    assert all(bool((weights[name] == others[name]).all()) for name in weights)
