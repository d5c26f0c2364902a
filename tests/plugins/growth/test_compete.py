"""Scores of widths during growth, and their decay."""

import numpy as np
import pytest

from tuner_growth.compete import (
    MOST_EPOCHS,
    MOST_SCORES,
    TRIPLET,
    EpochScores,
    History,
    growth_scores,
    observed,
    staying,
    tables,
)


def test_a_score_is_the_cosine_of_five_batches() -> None:
    saliency, losses = [3, 0, 0, 0, 4, 1, 1, 1, 1, 1, 9], [1, 0, 0, 0, 0, 2, 2, 2, 2, 2, 9]
    assert growth_scores(saliency, losses) == pytest.approx((60, 100))


def test_a_long_epoch_gives_no_more_scores_than_are_kept_and_few_batches_are_one_window() -> None:
    assert len(growth_scores([1.0] * 1000, [1.0] * 1000)) == MOST_SCORES
    assert growth_scores([1, 0], [1, 1]) == pytest.approx((100 / np.sqrt(2),))
    assert growth_scores([0.0], [0.0]) == (0.0,)


def seen(epoch: int, level: float) -> EpochScores:
    return EpochScores(epoch, tuple(level - 0.5 * index for index in range(8)))


def step(history: History, width: int, scores: EpochScores) -> History:
    return observed((history,), (width,), (scores,), 3)[0]


def grown() -> History:
    history: History = ()
    for epoch, (width, level) in enumerate([(2, 95), (3, 90), (5, 80), (5, 75), (5, 71)], start=1):
        history = step(history, width, seen(epoch, level))
    return history


def test_older_widths_keep_the_order_when_they_are_updated_in_reverse() -> None:
    history = grown()
    assert [one.width for one in history] == [2, 3, 5]
    means = [one.epochs[-1].mean for one in history]
    assert means == sorted(means, reverse=True)
    assert {one.epochs[-1].epoch for one in history} == {5}


def test_an_older_width_scores_its_last_ratio_times_the_new_width() -> None:
    history = step(step((), 2, EpochScores(1, (90.0,))), 3, EpochScores(2, (60.0,)))
    assert history[0].epochs[-1].scores == pytest.approx((90.0,))  # 90/60 of 60


def test_only_the_latest_three_widths_and_five_epochs_are_kept() -> None:
    history: History = ()
    for epoch in range(1, 12):
        history = step(history, 2 + epoch // 2, seen(epoch, 90 - 3 * epoch))
    assert [one.width for one in history] == [5, 6, 7]
    assert len(history) == TRIPLET
    assert max(len(one.epochs) for one in history) <= MOST_EPOCHS


def test_scores_decay_with_width_and_with_every_epoch_of_the_horizon() -> None:
    history = grown()
    last = staying((history,))[0][-1]
    assert last.mean(6) < last.mean(3)
    decays = tables((history,), 5, 3)[0]
    assert len(decays) == 4
    assert decays[0].at(2) > decays[0].at(5) > decays[0].at(8)
    levels = [decay.at(5) for decay in decays]
    assert levels == sorted(levels, reverse=True)


def test_layers_are_fitted_together_as_each_by_itself() -> None:
    one, two = grown(), step(grown(), 8, seen(6, 60))
    assert tables((one, (), two), 6, 2) == (tables((one,), 6, 2)[0], (), tables((two,), 6, 2)[0])
    assert staying((one[:1], two)) == (staying((one[:1],))[0], staying((two,))[0])
