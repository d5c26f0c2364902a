"""What a trial says to other kinds of devices: accuracies as they are, costs by the rates of both."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.plans import PLAN
from tuner.errors import RunError
from tuner.plan.parts import EditTraits, TailEdit
from tuner.planner.device import Rates, nominal
from tuner.planner.price import Estimate, price
from tuner.results.folder import append_record, write_run
from tuner.results.kinds import Device, Kind
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord, TrialState
from tuner.results.run import Run
from tuner_fleet.kinds import as_seen, paced

FIXTURE = Path(__file__).parents[2] / "fixtures" / "digits" / "run"
RATES = nominal(PLAN.model)
FAST = Device("Board", "aarch64", 4, 2)
SLOW = Device("Phone", "aarch64", 1, 1)
SMALL = replace(FAST, trial_bytes=50_000_000)
KINDS = {
    FAST.name: Kind(FAST, RATES),
    SLOW.name: Kind(SLOW, replace(RATES, train_seconds=tuple(10 * one for one in RATES.train_seconds))),
    SMALL.name: Kind(SMALL, replace(RATES, step_seconds=5.0)),
}
DONE = TrialRecord(
    3,
    "done",
    PLAN,
    values={"local_accuracy": 0.5, "train_seconds": 2.0, "peak_bytes": 8e7, "mean_latency_seconds": 0.1},
    constraint={"forget-at-most": -0.1},
    estimate=Estimate(1.0, 1.5, 10**7, 10**6),
    kind=FAST.name,
)


def seen(
    record: TrialRecord,
    device: Device,
    limits: Budget = Budget(),  # noqa: B008 - frozen
    kinds: Mapping[str, Kind] = KINDS,
) -> TrialRecord:
    found = as_seen(record, device.name, kinds, limits)
    assert found is not None
    return found


def test_a_slower_kind_takes_longer_for_the_same_accuracy() -> None:
    there = seen(DONE, SLOW)
    assert there.values["local_accuracy"] == 0.5
    assert there.values["train_seconds"] > 2 * DONE.values["train_seconds"]
    assert there.estimate is not None
    assert there.plan is not None
    assert there.estimate.train_seconds == pytest.approx(there.values["train_seconds"] / 2)
    assert there.plan.runtime.threads == 1
    assert seen(replace(there, kind=SLOW.name), SLOW) == replace(there, kind=SLOW.name)


def test_a_device_with_another_memory_limit_is_a_kind_of_equal_speed() -> None:
    assert len(KINDS) == 3
    assert str(SMALL) == "Board, 4 cores, 2 GiB, --memory 50.0 MB"
    there = seen(DONE, SMALL)
    assert there.values["train_seconds"] == 2.0  # its steps were measured as slow while something else ran
    assert there.values["mean_latency_seconds"] == 0.1
    assert there.kind == SMALL.name  # estimates learn from it


def test_each_kind_obeys_its_own_memory_limit() -> None:
    limits = Budget(memory_bytes=60_000_000, train_seconds=3.0)  # those of whoever asks
    expected = {"forget-at-most": -0.1, "train-time": math.log(2 / 3), "memory": pytest.approx(math.log(8 / 5))}
    assert seen(DONE, SMALL, limits).constraint == expected
    back = seen(replace(DONE, kind=SMALL.name), FAST, limits)
    assert back.constraint.keys() == {"forget-at-most", "train-time"}


@pytest.mark.parametrize("state", ["rejected", "killed"])
def test_what_another_kind_refuses_says_nothing(state: TrialState) -> None:
    refused = replace(DONE, state=state, values={}, constraint={"memory": 0.5}, kind=SMALL.name)
    assert as_seen(refused, FAST.name, KINDS, Budget()) is None
    assert as_seen(refused, SMALL.name, KINDS, Budget()) == refused


def test_costs_of_a_kind_that_nothing_is_known_of_are_not_shown() -> None:
    assert as_seen(replace(DONE, kind="unknown"), FAST.name, KINDS, Budget()) is None
    assert as_seen(DONE, "", {}, Budget()) == DONE  # a run of its own has no kinds


def test_a_tail_that_grew_within_other_memory_says_nothing() -> None:
    grows = TailEdit("widen", (), EditTraits(changes_shapes=True))
    grown = replace(DONE, plan=replace(PLAN, shape=(grows,)))
    assert as_seen(grown, SMALL.name, KINDS, Budget()) is None
    assert as_seen(grown, SLOW.name, KINDS, Budget()) is not None


def test_rates_that_memory_was_too_small_to_measure_are_those_of_a_device_as_fast() -> None:
    guessed = replace(RATES, train_seconds=tuple(100 * one for one in RATES.train_seconds), complete=False)
    kinds = KINDS | {SMALL.name: Kind(SMALL, guessed)}
    record = replace(DONE, kind=SLOW.name)
    assert seen(record, SMALL, kinds=kinds).values == seen(record, FAST, kinds=kinds).values


def test_a_kind_that_was_busy_while_it_was_measured_is_as_quick_as_its_trials() -> None:
    busy = replace(RATES, train_seconds=tuple(30 * one for one in RATES.train_seconds), step_seconds=0.03)
    kinds = KINDS | {SLOW.name: Kind(SLOW, busy)}
    taken = price(PLAN, RATES).train_seconds
    here = [replace(DONE, trial=number, values={"train_seconds": taken, "peak_bytes": 1e7}) for number in range(4)]
    there = [replace(one, trial=4 + one.trial, kind=SLOW.name) for one in here]  # as quick in truth
    assert paced(kinds, [])[SLOW.name].pace == 1.0
    before, after = (seen(here[0], SLOW, kinds=paced(kinds, some)) for some in (here, here + there))
    assert before.values["train_seconds"] > 8 * taken
    assert after.values["train_seconds"] == pytest.approx(taken, rel=0.05)
    back = seen(there[0], FAST, kinds=paced(kinds, here + there))
    assert back.values["train_seconds"] == pytest.approx(taken, rel=0.05)


def test_one_odd_trial_does_not_set_the_pace() -> None:
    usual = [
        replace(DONE, trial=number, values={"train_seconds": price(PLAN, RATES).train_seconds}) for number in (1, 2)
    ]
    odd = replace(DONE, values={"train_seconds": 1e4})
    assert paced(KINDS, [*usual, odd])[FAST.name].pace == pytest.approx(1.0)


def test_trials_of_a_kind_that_could_not_be_measured_set_the_pace_of_the_one_as_fast() -> None:
    guessed = KINDS | {SMALL.name: Kind(SMALL, replace(RATES, complete=False))}
    taken = 3 * price(PLAN, RATES).train_seconds
    values = {"train_seconds": taken, "peak_bytes": 1e7}
    ran = [replace(DONE, trial=number, values=values, kind=SMALL.name) for number in range(5)]
    pace = {name: kind.pace for name, kind in paced(guessed, ran).items()}
    assert pace == dict.fromkeys(KINDS, pytest.approx(3.0))  # what estimates lack, they lack on each kind
    shown = seen(ran[0], SLOW, kinds=paced(guessed, ran))
    assert shown.values["train_seconds"] == pytest.approx(3 * price(PLAN, KINDS[SLOW.name].rates).train_seconds)


@pytest.mark.parametrize("rates", [replace(RATES, step_seconds=-1e6), replace(RATES, step_seconds=math.nan)])
def test_rates_that_cannot_be_say_nothing_of_the_pace(rates: Rates) -> None:
    kinds = {FAST.name: Kind(FAST, rates)}
    assert paced(kinds, [DONE])[FAST.name].pace == 1


def test_a_run_of_several_kinds_is_read_by_the_plugin_that_translates_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    own = Run.open(tmp_path)
    rates = nominal(own.info.model)
    slowly = replace(rates, train_seconds=tuple(10 * one for one in rates.train_seconds))
    kinds = {FAST.name: Kind(FAST, rates), SLOW.name: Kind(SLOW, slowly)}
    write_run(tmp_path, replace(own.info, kinds=kinds, kind=FAST.name))
    for record in (replace(one, kind=SLOW.name) for one in own.records):
        append_record(tmp_path, record)
    fast, slow = Run.open(tmp_path), Run.open(tmp_path, kind=SLOW.name[:6])
    trial = slow.front[0]
    assert slow.record(trial).values == own.record(trial).values
    assert slow.device == "aarch64, 1 core"
    taken = [run.record(trial).values for run in (fast, slow)]
    assert taken[0]["train_seconds"] != taken[1]["train_seconds"]
    assert taken[0]["local_accuracy"] == taken[1]["local_accuracy"]
    monkeypatch.setenv("TUNER_PLUGINS", "-fleet")
    with pytest.raises(RunError, match="is of a study that several workers share, and the plugin that reads it is not"):
        Run.open(tmp_path)
