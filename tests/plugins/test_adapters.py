"""The static edits of the first party: what trains, on every engine, and what is left of them afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.runtime.bundles import trainable_bundle
from tests.sessions import barely_pretrained, opened
from tuner.backends.base import Backend, Trial
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import load
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.planner import tail_terms
from tuner.plugin.compose import compose
from tuner.plugin.sources import preferred_values
from tuner.runtime import Bundle, Trainer
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_bias import BiasOnly
from tuner_freeze import Freeze
from tuner_growth import Growth
from tuner_lora import Lora
from tuner_sparse import Sparse

HEAD = "6."
Finished = Callable[[str], tuple[Mapping[str, torch.Tensor], Path]]
EDITS = {
    "bias": TailEdit.of("bias-only", scales=False),
    "lora": TailEdit.of("low-rank", rank=2, scale=1.0),
    "sparse": TailEdit.of("sparse", share=0.25),
    "lora-head": TailEdit.of("low-rank", rank=2, scale=1.0, head="low-rank"),
}


@pytest.mark.parametrize("strategy", [BiasOnly(), Lora(), Sparse()])
def test_depth_rate_and_edit_come_from_one_strategy_and_exclude_growth(strategy: Any) -> None:
    values = {"split.by": strategy.name, f"{strategy.name}.trainable_blocks": 3, "growth.mode": "tail"}
    strategies = [Freeze(), strategy, Growth()]
    composed = compose(strategies, preferred_values(values), example_model(8), example_task())
    assert composed.plan.split == 5
    assert [edit.kind for edit in composed.plan.shape] == [EDITS[strategy.name].kind]
    faster = composed.plan.recipe.learning_rate / RecipePlan().learning_rate
    assert faster == (1 if strategy.name == "sparse" else 3)
    assert compose(strategies, preferred_values({}), example_model(8), example_task()).plan.shape == ()


def test_the_head_alone_may_train_low_rank() -> None:
    values: dict[str, Any] = {"split.by": "lora", "lora.trainable_blocks": 2, "lora.rank": 1, "lora.head": "low-rank"}
    plan = compose([Freeze(), Lora()], preferred_values(values), example_model(8), example_task()).plan
    assert plan.shape == (TailEdit.of("low-rank", rank=1, scale=1.0, head="low-rank"),)


def plan_of(edit: TailEdit, backend: str = "torch", **recipe: Any) -> TrialPlan:
    """Train all four blocks of the digits' model."""
    task = barely_pretrained()
    settings = {"epochs": 2, "learning_rate": 3e-3, "batch_size": 48, **recipe}
    return TrialPlan(
        opened(TorchBackend(), task).model,
        task_info(task),
        shape=(edit,),
        recipe=RecipePlan(**settings),
        runtime=RuntimePlan(backend=backend),
    )


def trained(plan: TrialPlan, folder: Path, backend: Backend | None = None) -> tuple[Any, Mapping[str, torch.Tensor]]:
    outcome = opened(backend or TorchBackend(), barely_pretrained()).train(
        Trial(plan, 1, Store(folder / "store"), folder / "w")
    )
    return outcome, load_file(folder / "w")


@pytest.fixture(scope="module")
def finished(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Train an edit once, and export it with what trains it again; give the weights and the bundle."""

    @cache
    def of(name: str) -> tuple[Mapping[str, torch.Tensor], Path]:
        folder = tmp_path_factory.mktemp(name)
        bundle = trainable_bundle(barely_pretrained(), folder, split=1, shape=(EDITS[name],))
        return load_file(folder / "trained.safetensors"), bundle

    return of


@pytest.fixture(scope="module")
def plain_bytes(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the size of the same weights, exported by a plan that edits nothing."""
    plan, out = replace(plan_of(EDITS["bias"]), split=1, shape=()), tmp_path_factory.mktemp("plain")
    trained = finished("bias")[1].parent / "trained.safetensors"
    opened(TorchBackend(), barely_pretrained()).export(plan, trained, out, trainable=False)
    return bytes_of(out)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_trains_what_it_says_and_leaves_the_models_own_weights(finished: Finished, name: str) -> None:
    given = load(barely_pretrained()).model.state_dict()
    after, bundle = finished(name)
    assert set(after) <= set(given)
    counts = {key: int((value != given[key]).sum()) for key, value in after.items()}
    differ = {key: count for key, count in counts.items() if count}
    weights = {key for key in differ if after[key].ndim > 1 and not key.startswith(HEAD)}
    if name == "bias":
        assert all(key.endswith("bias") for key in differ if not key.startswith(HEAD))
        assert any(key.endswith("bias") and not key.startswith(HEAD) for key in differ)
    elif name.startswith("lora"):
        assert weights
        assert f"{HEAD}bias" in differ
        weights |= {f"{HEAD}weight"} if name == "lora-head" else set()
        for key in weights:
            update = (after[key] - given[key]).flatten(1)
            assert torch.linalg.matrix_rank(update, rtol=1e-4) <= 2
    else:
        total = sum(value.numel() for key, value in after.items() if value.ndim > 1 and not key.startswith(HEAD))
        assert 0 < sum(differ[key] for key in weights) < 0.4 * total
        for key in weights:  # whole channels train, and others do not
            moved = (after[key] != given[key]).transpose(0, 1).flatten(1).any(1)
            assert int(moved.sum()) > 0
    told = Bundle.open(bundle).info.scores.trial
    assert told["parameters"] == sum(block.parameters for block in plan_of(EDITS[name]).model.blocks)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("name", EDITS)
def test_every_engine_trains_an_edit_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, results = plan_of(EDITS[name], optimiser="sgd", learning_rate=1e-2), {}
    results["eager"] = trained(plan, tmp_path / "eager")
    assert "eager loop" in results["eager"][0].notes[0]
    monkeypatch.setattr(tail_terms, "PLANNED_BYTES", 0)
    results["planned"] = trained(plan, tmp_path / "planned")
    assert "planned executor" in results["planned"][0].notes[0]
    ort = replace(plan, runtime=replace(plan.runtime, backend="onnxruntime"))
    results["onnxruntime"] = trained(ort, tmp_path / "ort", OrtBackend())
    losses = {engine: [entry["loss"] for entry in outcome.epochs] for engine, (outcome, _) in results.items()}
    for engine, (_, weights) in results.items():
        assert losses[engine] == pytest.approx(losses["eager"], rel=1e-3), engine
        for key, value in weights.items():
            assert torch.allclose(value, results["eager"][1][key], atol=2e-3), (engine, key)


def bytes_of(folder: Path) -> int:
    import onnx

    return sum(value.ByteSize() for value in onnx.load(folder / "model.onnx").graph.initializer)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_tail_is_exported_as_the_models_own(finished: Finished, plain_bytes: int, name: str) -> None:
    after, bundle = finished(name)
    scores = Bundle.open(bundle).info.scores
    assert abs(scores.from_pixels["local_accuracy"] - scores.trial["local_accuracy"]) <= 0.01
    state = load_file(bundle / "weights.safetensors")
    assert all(torch.equal(state[key], value) for key, value in after.items())
    assert bytes_of(bundle) <= 1.1 * plain_bytes


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("name", EDITS)
def test_a_bundle_trains_again_by_the_same_edit(finished: Finished, name: str, tmp_path: Path) -> None:
    _, bundle = finished(name)
    given = load_file(bundle / "weights.safetensors")
    trainer, samples = Trainer(bundle, threads=1), digits().local.train
    trainer.add([samples.load(index) for index in range(60)], [str(samples.labels[index]) for index in range(60)])
    losses = (*trainer.train(epochs=2), *trainer.train(epochs=2))
    assert losses[-1] < losses[0]
    after = load_file(trainer.save(tmp_path / "next") / "weights.safetensors")
    assert after.keys() == given.keys()
    changed = {key: int((after[key] != value).sum()) for key, value in given.items()}
    weights = {key: count for key, count in changed.items() if given[key].ndim > 1 and not key.startswith(HEAD)}
    if name == "bias":
        assert not any(weights.values())
        assert any(count for key, count in changed.items() if key.endswith("bias"))
    elif name.startswith("lora"):
        moved = [key for key, count in weights.items() if count]
        ranks = [torch.linalg.matrix_rank((after[key] - given[key]).flatten(1), rtol=1e-3) for key in moved]
        assert 0 < max(ranks) <= 4  # two trainings of rank 2 each
    else:
        assert 0 < sum(weights.values()) < sum(given[key].numel() for key in weights) / 2
