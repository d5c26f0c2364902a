"""Herding, and the strategy that mixes in what it chooses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.plugins.candidates import candidates
from tuner.plan.example import example_model, example_task
from tuner.plan.info import TaskInfo
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, compose
from tuner.plugin.sources import fixed_values, preferred_values
from tuner.plugin.strategy import Strategy
from tuner_coreset import HERDING, Coreset, herding
from tuner_gdm import GlobalDatasetMixing


def composed(alpha: float, considered: int, task: TaskInfo | None = None) -> TrialPlan:
    values = fixed_values({"coreset.alpha": alpha, "coreset.candidates": considered})
    return compose([Coreset()], values, example_model(4), task or example_task()).plan


def by_hand(features: np.ndarray, count: int) -> Sequence[int]:
    """iCaRL's Algorithm 4 as printed."""
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    chosen: list[int] = []
    for number in range(1, count + 1):
        rest = [row for row in range(len(units)) if row not in chosen]
        means = [(units[chosen].sum(axis=0) + units[row]) / number for row in rest]
        chosen.append(rest[int(np.argmin([np.linalg.norm(units.mean(axis=0) - mean) for mean in means]))])
    return chosen


def test_the_choice_is_that_of_the_papers_algorithm() -> None:
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32) + 1
    labels = np.repeat([2, 5], 30)
    chosen = list(herding(candidates(features, labels, {2: 6, 5: 11}), {}))
    assert chosen[:6] == by_hand(features[:30], 6)
    assert [row - 30 for row in chosen[6:]] == by_hand(features[30:], 11)


def test_the_mean_of_what_is_chosen_is_nearer_to_the_class_mean_than_a_random_choices() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 16)).astype(np.float32) + 3
    units = features / np.linalg.norm(features, axis=1, keepdims=True)

    def distance(rows: Sequence[int]) -> float:
        return float(np.linalg.norm(units[rows].mean(axis=0) - units.mean(axis=0)))

    chosen = distance(list(herding(candidates(features, np.zeros(200, np.int64), {0: 20}), {})))
    assert chosen < 0.7 * min(distance(list(generator.permutation(200)[:20])) for _ in range(50))


def test_the_same_number_of_samples_is_mixed_in_and_more_are_filled() -> None:
    plan = composed(0.05, 4)
    assert plan.data.edit is not None
    assert plan.data.edit.kind == HERDING
    assert plan.global_samples == 35
    assert plan.pool_samples == plan.local_samples + 140
    assert "35 global" in describe(plan)
    assert "by herding of 4 each" in describe(plan)


def test_what_is_considered_is_another_trial_where_anything_is_chosen() -> None:
    assert composed(0.0, 4).key() == composed(0.0, 2).key()
    assert composed(0.0, 4).data.edit is None
    assert composed(0.05, 4).key() != composed(0.05, 2).key()


def both(values: dict[str, str]) -> Composed:
    in_the_hosts_order: list[Strategy[Any]] = [Coreset(), GlobalDatasetMixing()]
    return compose(in_the_hosts_order, preferred_values(dict(values)), example_model(4), example_task())


def test_next_to_gdm_a_knob_draws_which_takes_part_and_gdm_is_tried_first() -> None:
    first = both({})
    assert first.values["data.by"] == "gdm"
    assert "coreset.alpha" not in first.values
    assert first.plan.data.edit is None
    second = both({"data.by": "coreset"})
    assert "gdm.alpha" not in second.values
    assert second.editors == {HERDING: "coreset"}
