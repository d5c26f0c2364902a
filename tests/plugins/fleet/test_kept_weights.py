"""Weights of a study's front are kept, also where it turns out later how quick a kind of device is."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.fleet.conftest import PHONE
from tuner.commands.runs.source import open_run
from tuner.planner.price import price
from tuner.results.kinds import COST_LIMITS
from tuner.results.records.config import Budget
from tuner.results.records.trial import SCORED
from tuner_fleet.study.content import weights_in


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 9])
def test_a_trial_that_is_on_a_front_later_has_its_weights(join: Any, address: str, tmp_path: Path, seed: int) -> None:
    numbers, store = random.Random(seed), tmp_path / "store"
    limits = Budget(trials=60)
    board = join("board", limits, artifacts=store)
    phone = join("phone", limits, device=PHONE, artifacts=store, slower=30.0)  # it was busy while it was measured

    rates = board.shared.kinds[board.shared.kind].rates

    def carry_out(worker: Any) -> None:
        trial = worker.begin()
        record = None if trial is None else worker.train(trial)
        if record is None:
            return
        file = worker.weights(trial.number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("weights")
        if record.state in SCORED:  # both are as quick in truth
            seconds = price(record.plan, rates).train_seconds * numbers.uniform(0.9, 1.1)
            values = {**record.values, "train_seconds": seconds, "local_accuracy": numbers.random()}
            constraint = {name: value for name, value in record.constraint.items() if name not in COST_LIMITS}
            record = replace(record, values=values, constraint=constraint)
        worker.keep(trial, record)

    for worker in [board] * 15 + [phone] * 15 + [board] * 5:
        carry_out(worker)
    for worker in (board, phone):
        worker.hear()
        worker.settle()
        names = {trial.number: weights_in(trial) for trial in worker.queue.study.get_trials()}
        run = open_run(address, worker.shared.kind)
        assert len(run.front) > 1
        assert all((store / str(names[number])).is_file() for number in run.front)
