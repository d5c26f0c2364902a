"""What a first step takes, measured; and by it, what a whole model's training takes before any trial."""

from pathlib import Path

import pytest

from tuner.backends.base import Trial
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.session import first_steps
from tuner.plan.parts import RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.price import price
from tuner.plugin.core import build_host
from tuner.search.estimate.rates import rates_of
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info


def test_each_cut_has_a_figure_and_no_weight_moves(task: Task, loaded: OpenModel) -> None:
    weights = state_hash(loaded.model)
    first = first_steps(task, loaded, 1)
    for values in (first.library_bytes, first.seconds):
        assert len(values) == loaded.info.num_blocks
        assert min(values) >= 0
    assert first.seconds == tuple(sorted(first.seconds, reverse=True))
    assert state_hash(loaded.model) == weights


@pytest.mark.slow
def test_before_any_trial_the_whole_model_is_expected_within_half_of_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    task = digits()
    with open_remote(build_host(), "digits", ["torch"], many_jobs=True) as sessions:
        session = sessions["torch"]
        rates = rates_of(session, "torch", measure=True)
        plan = TrialPlan(session.model, task_info(task), recipe=RecipePlan(epochs=1), runtime=RuntimePlan("torch"))
        outcome = session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "weights"))
    measured = outcome.values["peak_bytes"]
    assert measured / 1.5 < price(plan, rates).peak_bytes < 1.5 * measured
