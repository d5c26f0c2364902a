"""Global samples that a selector chooses: filled, chosen, trained on and exported."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.torch.features.stores import Counting, access
from tests.backends.torch.plans import places_in, plan_of
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.measuring import MeasuredTrial
from tuner.backends.selecting import Candidates, SelectorError
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill, missing
from tuner.backends.torch.features.selection import mixed_selections, pool_selections
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.choice import chosen_selections, trained_on
from tuner.bundle.replay import Replay
from tuner.errors import BundleError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataEdit, DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import feature_bytes
from tuner.planner.device import nominal
from tuner.planner.price import price
from tuner.runtime.train.files import REPLAY
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.spec import ModelSpec
from tuner_coreset import herding

pytestmark = pytest.mark.slow

CHANNELS = 6
TOKENS = f"""
from torch import nn

class Tokens(nn.Module):
    def forward(self, maps):
        return maps.flatten(2).transpose(1, 2)

class Mean(nn.Module):
    def forward(self, tokens):
        return tokens.mean(dim=1)

def build(outputs=7):
    embed = nn.Sequential(nn.Conv2d(1, {CHANNELS}, 2, stride=2), Tokens())
    mixed = nn.Sequential(nn.LayerNorm({CHANNELS}), nn.Linear({CHANNELS}, {CHANNELS}), nn.GELU())
    pooled = nn.Sequential(nn.Linear({CHANNELS}, {CHANNELS}), Mean())
    return nn.Sequential(embed, mixed, pooled, nn.Linear({CHANNELS}, outputs))
"""


def last(asked: Candidates, settings: Mapping[str, Any]) -> list[int]:
    rows = {label: np.flatnonzero(asked.labels == label) for label in asked.counts}
    return [int(row) for label, count in asked.counts.items() for row in rows[label][-count:]]


EXTENSIONS = Extensions(selectors={"last": last, "herding": herding})


def choosing(plan: TrialPlan, kind: str = "herding", candidates: int = 4) -> TrialPlan:
    return replace(plan, data=replace(plan.data, edit=DataEdit(kind, candidates=candidates)))


@pytest.fixture
def plan(task: Task, loaded: OpenModel) -> TrialPlan:
    return choosing(plan_of(task, loaded))


@pytest.fixture
def here(task: Task, loaded: OpenModel, tmp_path: Path) -> Access:
    return access(task, loaded, tmp_path / "store")


def test_candidates_are_filled_and_the_chosen_train(here: Access, task: Task, plan: TrialPlan) -> None:
    assert missing(here, [plan]) == plan.pool_samples + plan.local_scored + plan.global_scored
    fill(here, [plan])
    local, chosen = chosen_selections(here, plan, EXTENSIONS)
    (default,), (pool,) = mixed_selections(task, plan), pool_selections(task, plan)
    assert len(local) + len(chosen) == plan.train_samples
    assert len(local) + len(pool) == plan.pool_samples
    assert set(chosen.indices) <= set(pool.indices)
    assert set(chosen.indices) != set(default.indices)
    assert np.array_equal(np.sort(chosen.labels()), np.sort(default.labels()))


@pytest.mark.parametrize("bits", [16, 4])
def test_a_store_that_was_filled_anew_gives_the_same_choice(
    task: Task, loaded: OpenModel, plan: TrialPlan, tmp_path: Path, bits: int
) -> None:
    plan, chosen = replace(plan, cache=CachePlan("cache", bits)), []
    for name, others in (("one", []), ("other", [replace(plan, data=DataPlan(1.0)), plan])):
        here = access(task, loaded, tmp_path / name)
        fill(here, [*others, plan])
        chosen.append(chosen_selections(here, plan, EXTENSIONS)[1].indices)
    assert np.array_equal(chosen[0], chosen[1])


def test_with_exits_alone_features_before_the_head_choose(here: Access, plan: TrialPlan) -> None:
    """Nothing of the model trains then, and there is no block after the last one."""
    exits = HeadsPlan(mode="exits-only", exits=(Exit(1, 0),), ridge=100.0)
    alone = normal_form(replace(plan, heads=exits, cache=CachePlan("cache", 16)))
    assert alone.split == alone.model.num_blocks
    fill(here, [alone])
    _, chosen = chosen_selections(here, alone, EXTENSIONS)
    assert len(chosen) == alone.global_samples


def test_without_a_store_the_prefix_gives_the_features(here: Access, plan: TrialPlan) -> None:
    exact = replace(plan, cache=CachePlan("cache", 32))
    fill(here, [exact])
    stored, computed = (
        chosen_selections(here, one, EXTENSIONS)[1].indices for one in (exact, replace(plan, cache=CachePlan()))
    )
    assert len(np.intersect1d(stored, computed)) >= 0.9 * len(stored)


@pytest.mark.parametrize("cut", [1, 2])
def test_features_of_tokens_are_means_over_the_tokens(task: Task, tmp_path: Path, cut: int) -> None:
    """A layer that takes channels last says where they are."""
    (tmp_path / "tokens.py").write_text(TOKENS)
    spec = ModelSpec(f"{tmp_path / 'tokens.py'}:build")
    tokens = replace(task, model=spec)
    loaded, seen = load(tokens), list[Candidates]()
    assert loaded.info.blocks[cut].in_shape[-1] == CHANNELS
    plan = choosing(replace(plan_of(tokens, loaded, split=cut), cache=CachePlan()), "noting")

    def noting(asked: Candidates, settings: Mapping[str, Any]) -> list[int]:
        seen.append(asked)
        assert asked.features.shape == (len(asked.labels), CHANNELS)
        return last(asked, settings)

    chosen_selections(access(tokens, loaded, tmp_path / "store"), plan, Extensions(selectors={"noting": noting}))
    assert seen


def test_a_share_chooses_among_its_own_candidates(here: Access, task: Task, plan: TrialPlan) -> None:
    half = replace(plan, data=replace(plan.data, alpha=0.5, share=0.5))
    whole, (pool,) = replace(half, data=DataPlan(1.0, share=0.5)), pool_selections(task, half)
    assert np.array_equal(pool.indices, mixed_selections(task, whole)[0].indices)
    fill(here, [half])
    chosen = chosen_selections(here, half, EXTENSIONS)[1]
    assert len(chosen) == half.global_samples < len(pool) < len(pool.samples)


def test_a_choice_by_labels_reads_no_features(here: Access, task: Task, plan: TrialPlan) -> None:
    loads: list[int] = []
    assert task.global_ is not None
    counted = replace(task, global_=replace(task.global_, train=Counting(task.global_.train, loads)))
    here, uncached = replace(here, task=counted), replace(plan, cache=CachePlan())
    assert len(chosen_selections(here, choosing(uncached, "last"), EXTENSIONS)[1]) == plan.global_samples
    assert loads == []
    chosen_selections(here, uncached, EXTENSIONS)
    assert len(loads) == plan.pool_samples - plan.local_samples


@pytest.mark.parametrize("exits", [False, True])
def test_an_export_replays_what_the_trial_was_trained_on(
    task: Task, loaded: OpenModel, plan: TrialPlan, tmp_path: Path, *, exits: bool
) -> None:
    if exits:
        heads = HeadsPlan("with-tail", (Exit(1, 16),), tolerance=0.9)
        plan = replace(plan, heads=heads, recipe=RecipePlan(epochs=6, learning_rate=1e-2))
    store, weights = Store(tmp_path / "store"), tmp_path / "w.safetensors"
    session = TorchBackend().open(task, EXTENSIONS)
    session.train(Trial(plan, 1, store, weights))
    (written,) = trained_on(task, plan, weights)
    assert np.array_equal(
        written.indices, chosen_selections(access(task, loaded, store.folder), plan, EXTENSIONS)[1].indices
    )
    (tmp_path / "out").mkdir()
    session.export(plan, weights, tmp_path / "out", trainable=True)
    assert places_in(tmp_path / "out") == {}
    replay = Replay.load(tmp_path / "out" / REPLAY)
    assert np.array_equal(replay.labels[: len(written)], written.labels())  # then more, where a round forgets
    other = TorchBackend().open(task, Extensions())
    other.train(Trial(replace(plan, data=DataPlan(plan.data.alpha)), 1, store, weights))
    with pytest.raises(BundleError, match=r"does not say which samples selector 'herding' chose"):
        trained_on(task, plan, weights)


def test_a_selector_that_breaks_a_rule_ends_the_trial_and_measures_see_the_trained_tail(
    task: Task, plan: TrialPlan, tmp_path: Path
) -> None:
    def greedy(asked: Candidates, settings: Mapping[str, Any]) -> list[int]:
        return list(range(len(asked.labels)))

    def trained(trial: MeasuredTrial) -> float:
        return float(sum(value.numel() for value in trial.tail.parameters()) + len(trial.outcome.epochs))

    measures = {"mine": lambda: trained, "other": lambda: trained}
    extensions, store = Extensions(selectors={"greedy": greedy}, measures=measures), Store(tmp_path / "store")
    with pytest.raises(SelectorError, match=r"selector 'greedy': it must choose counts\[0\] = \d+ of class 0"):
        TorchBackend().open(task, extensions).train(Trial(choosing(plan, "greedy"), 1, store, tmp_path / "w"))
    plain = replace(plan, data=DataPlan())
    trial = Trial(plain, 1, store, tmp_path / "w", objectives=("mine", "local_accuracy"))
    outcome = TorchBackend().open(task, extensions).train(trial)
    tail = sum(block.parameters for block in plain.model.blocks[plain.split :])
    assert outcome.values["mine"] == tail + plain.recipe.epochs
    assert "other" not in outcome.values


def test_what_is_considered_costs_its_features(loaded: OpenModel, plan: TrialPlan) -> None:
    rates, plain = nominal(loaded.info), replace(plan, data=replace(plan.data, edit=None))
    more = plan.pool_samples - plain.train_samples
    assert more == 3 * plain.global_samples
    dear, cheap = (price(one, rates).estimate(one.pool_samples).spend_seconds for one in (plan, plain))
    assert dear - cheap >= more * price(plan, rates).fill_seconds
    assert price(plan, rates).train_seconds - price(plain, rates).train_seconds < more * price(plan, rates).fill_seconds
    values = np.prod(plan.model.blocks[plan.split].in_shape)
    assert feature_bytes(plan) - feature_bytes(plain) == more * values
    uncached = [replace(one, cache=CachePlan()) for one in (plan, plain)]
    dearer = price(uncached[0], rates).train_seconds - price(uncached[1], rates).train_seconds
    assert dearer == pytest.approx(plan.pool_samples * price(plan, rates).fill_seconds)
