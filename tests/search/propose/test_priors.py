"""Which plans of a prior a study tries first, and which never."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.search.conftest import DIRECTIONS, Begin, Heard
from tuner.plan.example import example_model
from tuner.plan.parts import Scalar
from tuner.results.prior.file import Expected, Prior, PriorPlan, Source, Trains
from tuner.results.records.config import Budget
from tuner.results.scores.likeness import kind_of_task
from tuner.search.study import Study
from tuner.search.trials.journal import open_study
from tuner.task import Task
from tuner.task.info import task_info


def knobs(epochs: int, **more: Scalar) -> dict[str, Scalar]:
    """Return a plan that trains the last block from an 8-bit cache."""
    named = {name.replace("__", "."): value for name, value in more.items()}
    base: dict[str, Scalar] = {"freeze.trainable_blocks": 1, "cache.by": "cache", "cache.bits": 8}
    return {**base, "recipe.epochs": epochs, **named}


def plan(epochs: int, *accuracies: float, **more: Scalar) -> PriorPlan:
    """Return a plan with a local accuracy on each task; its global accuracy is 0.5."""
    expected = (Expected(place, 3.0, 1.0, one, 0.5) for place, one in enumerate(accuracies, 1))
    return PriorPlan(knobs(epochs, **more), expected=tuple(expected))


@pytest.fixture
def sources(task: Task) -> Sequence[Source]:
    """A task like the one that is tuned, and one that is not."""
    like = kind_of_task(example_model(4), task_info(task), "")
    unlike = replace(like, local=10 * like.local, samples="windows")
    return [Source(kind, 9, {"local_accuracy": 0.0, "global_accuracy": 0.5}, 0.5) for kind in (like, unlike)]


def tried(study: Study) -> list[tuple[int | None, Scalar]]:
    return [(record.prior, record.knobs["recipe.epochs"]) for record in study.records]


def numbers(journal: Path) -> list[int | None]:
    """Return, of the trials in the queue, the number of each one's plan in the prior."""
    return [trial.user_attrs.get("prior") for trial in open_study(journal, DIRECTIONS).trials]


@pytest.mark.parametrize(("order", "first"), [(1, [(2, 6), (1, 5)]), (-1, [(1, 5), (2, 6)])])
def test_what_did_well_on_tasks_like_this_one_comes_first(
    begin: Begin, sources: Sequence[Source], order: int, first: list[tuple[int, int]]
) -> None:
    both = (plan(5, 0.2, 0.9), plan(6, 0.8, 0.1))
    study = begin(Budget(trials=8), portfolio=Prior(tuple(sources)[::order], both))
    study.run()
    assert tried(study)[:2] == first
    assert all(prior is None for prior, _ in tried(study)[2:])


def test_a_plan_that_adds_nothing_to_those_before_it_is_left_out(
    begin: Begin, sources: Sequence[Source], heard: Heard, tmp_path: Path
) -> None:
    begin(Budget(trials=40), portfolio=Prior(tuple(sources[:1]), (plan(6, 0.8), plan(5, 0.8), plan(7, 0.79))))
    assert numbers(tmp_path / "journal.log") == [2]  # it has fewer epochs, and adds as much
    assert heard.lines == ["trying first 1 of 3 plans of the prior, which was built from 1 task"]


def test_a_plan_that_cannot_run_here_costs_no_trial(begin: Begin, heard: Heard, stand_in: Any, tmp_path: Path) -> None:
    prior = Prior((), (plan(3), plan(4)))
    begin(Budget(trials=8), portfolio=prior)
    assert numbers(tmp_path / "journal.log")[:2] == [1, 2]
    begin(Budget(trials=8, memory_bytes=1000), portfolio=prior, path=tmp_path / "another.log")
    assert numbers(tmp_path / "another.log") == []
    assert heard.lines[1] == "trying first 0 of 2 plans of the prior"
    assert heard.lines[2].startswith(
        "plans of the prior that do not fit here: 2; the first one because: --memory: needs"
    )
    assert stand_in.trained() == []


def test_what_is_not_installed_here_is_skipped_with_a_sentence(begin: Begin, heard: Heard) -> None:
    given = Prior((), (plan(3, cache__by="holograms"), plan(4, holograms__depth=3, cache__bits=7)))
    study = begin(Budget(trials=8), portfolio=given)
    study.run()
    assert tried(study)[0] == (2, 4)
    assert study.records[0].knobs["cache.bits"] == 8  # the nearest that there is
    assert heard.lines[:3] == [
        "trying first 1 of 2 plans of the prior",
        "plans of the prior that do not fit here: 1; the first one because: cache.by = 'holograms' is not searched",
        "knobs of the prior that are not searched here are skipped: holograms.depth",
    ]


def test_a_prior_takes_a_share_of_the_trials(begin: Begin, tmp_path: Path) -> None:
    begin(Budget(trials=8), portfolio=Prior((), tuple(plan(epochs) for epochs in range(3, 13))))
    assert numbers(tmp_path / "journal.log") == [1, 2]


@pytest.mark.parametrize(("depth", "blocks"), [(0.0, 1), (0.35, 2), (1.0, 4)])
def test_a_model_with_other_blocks_trains_a_like_share(begin: Begin, depth: float, blocks: int) -> None:
    model = example_model(4)
    flops = sum(block.flops for block in model.blocks[4 - blocks :]) / sum(block.flops for block in model.blocks)
    given = replace(plan(3), knobs=knobs(3, freeze__trainable_blocks=17), trains=Trains(depth, flops))
    study = begin(Budget(trials=8), portfolio=Prior((), (given,)))
    study.run()
    assert study.records[0].plan is not None
    assert study.records[0].plan.trainable == blocks


def test_once_the_lowest_rung_is_left_a_prior_is_tried_above_it(
    begin: Begin, sources: Sequence[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.search.study.lowest_rung", lambda *_: 1)
    monkeypatch.setattr("tuner.search.study.prepare_slice", lambda *_: 1)
    both = (plan(5, 0.2, 0.9), plan(6, 0.8, 0.1))
    study = begin(Budget(trials=8, time_seconds=600.0), portfolio=Prior(tuple(sources), both))
    study.run()
    assert [(record.prior, record.rung) for record in study.records[:2]] == [(2, 1), (1, 0)]
