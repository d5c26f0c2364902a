"""Patience of side heads: it watches the exits' own accuracy on the user's validation samples."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from tests.sessions import opened
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner.task.spec import Pretrain

pytestmark = pytest.mark.slow
BACKEND = TorchBackend()


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Task]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        task = digits()
        yield replace(task, model=replace(task.model, pretrain=Pretrain(epochs=1, learning_rate=3e-3)))


def carried_out(task: Task, folder: Path, mode: Any = "exits-only", **recipe: Any) -> tuple[Outcome, dict[str, Any]]:
    session = opened(BACKEND, task)
    heads = HeadsPlan(mode, (Exit(1, 8), Exit(2, 16)), supervised=1.0, distilled=0.0, against="best")
    settings = {"epochs": 6, "learning_rate": 1e-2, **recipe}
    plan = TrialPlan(
        session.model,
        task_info(task),
        DataPlan(0.05),
        3,
        heads=heads,
        cache=CachePlan("cache", 8),
        recipe=RecipePlan(**settings),
    )
    store = Store(folder / "store")
    session.fill([normal_form(plan)], store)
    outcome = session.train(Trial(normal_form(plan), 1, store, folder / "weights.safetensors"))
    return outcome, load_file(folder / "weights.safetensors")


def test_exits_that_no_longer_improve_end_early(task: Task, tmp_path: Path) -> None:
    outcome, _ = carried_out(task, tmp_path, learning_rate=1e-9, patience=2)
    assert outcome.stopped == "no better local accuracy of the exits for 2 epochs, after epoch 3"
    assert len(outcome.epochs) == 3
    assert all(0 <= epoch["local_accuracy"] <= 1 for epoch in outcome.epochs)


def test_the_score_is_the_mean_of_the_exits_own_accuracies(task: Task, tmp_path: Path) -> None:
    outcome, _ = carried_out(task, tmp_path, epochs=4, patience=2)
    assert len(outcome.epochs) == 4, "this seed improves until the last epoch"
    own = [
        value for name, value in outcome.values.items() if name.startswith("exit") and name.endswith("local_accuracy")
    ]
    assert len(own) == 2, "no exit was pruned"
    assert outcome.epochs[-1]["local_accuracy"] == pytest.approx(np.mean(own))


def test_patience_that_is_not_spent_changes_no_weight(task: Task, tmp_path: Path) -> None:
    patient, weights = carried_out(task, tmp_path / "patient", epochs=4, patience=2)
    plain, others = carried_out(task, tmp_path / "plain", epochs=len(patient.epochs), schedule="cosine")
    assert len(patient.epochs) == 4, "this seed improves until the last epoch"
    assert [epoch["loss"] for epoch in patient.epochs] == [epoch["loss"] for epoch in plain.epochs]
    assert all(bool((weights[name] == others[name]).all()) for name in weights)


def test_exits_train_though_the_patience_with_their_tail_was_spent(task: Task, tmp_path: Path) -> None:
    outcome, weights = carried_out(task, tmp_path, "with-tail", learning_rate=1e-9, patience=1)
    reasons = outcome.stopped.split("; ")
    assert reasons == [
        "no better local accuracy for 1 epochs, after epoch 2",
        "no better local accuracy of the exits for 1 epochs, after epoch 2",
    ]
    assert len(outcome.epochs) == 4
    assert weights
