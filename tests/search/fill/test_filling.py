"""What a plan still has to pay: only features that are missing count."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.search.conftest import Heard, InProcess
from tuner.backends.base import Filling
from tuner.errors import TunerError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import QUANTISING_SAMPLES, feature_bits, feature_bytes, feature_records, weight_bytes
from tuner.planner.device import nominal
from tuner.planner.price import Estimate, price
from tuner.results.records.config import Budget
from tuner.results.records.trial import Outcome, TrialRecord
from tuner.search.estimate.forecast import Forecast
from tuner.search.fill.filling import Filler, UnfilledError
from tuner.search.processes.guard import JobResult
from tuner.search.processes.messages import Failure, Job
from tuner.search.scoring import scored_record
from tuner.search.setting import Setting
from tuner.store.calibrated import blocks_file
from tuner.store.codec import Codec, has_own_scales
from tuner.store.store import Store


def at(plan: TrialPlan, **changes: Any) -> TrialPlan:
    alpha = changes.pop("alpha", plan.data.alpha)
    bits = changes.pop("bits", plan.cache.bits)
    return replace(plan, data=replace(plan.data, alpha=alpha), cache=replace(plan.cache, bits=bits), **changes)


def filled(*folders: Path) -> JobResult[Any]:
    """Return the result of a pass that wrote few 8-bit records of cut 3 to the folders."""
    return JobResult("result", Filling(5, 1.0, {}, 0, {(3, 8): folders}))


@pytest.fixture
def small_filler(make_setting: Callable[..., Setting], sessions: Any, store: Store, heard: Heard) -> Filler:
    """Fills the store within 10 MB."""
    limits = Budget(trials=1, memory_bytes=10_000_000)
    return Filler(make_setting(limits, deterministic=False), sessions, store, heard)


def test_only_what_is_not_filled_yet_is_missing(filler: Filler, plan: TrialPlan) -> None:
    assert plan.train_samples == 22
    assert filler.missing(plan) == 22 + 4 + 8
    assert filler.missing(replace(plan, cache=replace(plan.cache, by="none"))) == 0
    filler.fill([at(plan, bits=8)])
    assert [filler.missing(at(plan, bits=bits)) for bits in (8, 4, 2, 1)] == [0, 0, 0, 0], "they come from 8 bits"
    assert filler.missing(at(plan, bits=16)) == filler.missing(at(plan, bits=32)) == 34
    assert filler.missing(at(plan, alpha=0.01)) == 0
    assert filler.missing(at(plan, alpha=0.1)) == 10
    assert filler.missing(at(plan, split=2)) == 34


def test_exits_ask_for_their_cuts_and_for_calibration_samples(filler: Filler, plan: TrialPlan) -> None:
    sides = replace(plan, heads=HeadsPlan("with-tail", (Exit(1, 4),)))
    filler.fill([at(plan, split=1), plan])
    assert filler.missing(sides) == 34  # the cuts are filled, but not at the calibration samples' 16 bits
    filler.fill([sides])
    assert filler.missing(sides) == filler.missing(at(sides, bits=4)) == 0
    assert filler.missing(at(plan, split=1)) == 0
    assert filler.missing(at(sides, alpha=0.1)) == 10


def test_what_exits_begin_with_takes_all_global_samples_once(filler: Filler, plan: TrialPlan, setting: Setting) -> None:
    rates = setting.rates
    alone = normal_form(replace(plan, heads=HeadsPlan("exits-only", (Exit(1, 0),), ridge=10.0)))
    begun = replace(alone, heads=replace(alone.heads, global_weight=1.0))
    assert begun.train_samples == alone.train_samples
    assert filler.missing(begun) - filler.missing(alone) == sum(plan.task.global_per_class) - alone.global_samples
    assert price(alone, rates).start_seconds == 0 < price(begun, rates).start_seconds
    dear = price(begun, rates).train_seconds - price(alone, rates).train_seconds
    assert dear == pytest.approx(price(begun, rates).start_seconds)  # features are a cost of the run
    assert price(begun, rates).storage_bytes > price(alone, rates).storage_bytes
    bare = replace(rates, fill_peak_bytes=0)
    assert price(begun, bare).peak_bytes > price(alone, bare).peak_bytes
    filler.fill([at(alone, alpha=1.0)])
    assert filler.missing(begun) > 0  # the features are there, but nothing was learned from them
    unpaid = price(begun, rates).estimate(filler.missing(begun)).spend_seconds
    filler.fill([begun])
    assert filler.missing(begun) == filler.missing(replace(begun, heads=replace(begun.heads, global_weight=0.1))) == 0
    assert unpaid - price(begun, rates).estimate(0).spend_seconds > price(begun, rates).start_seconds
    wider = normal_form(replace(begun, heads=replace(begun.heads, ridge=0.0, exits=(Exit(1, 4),))))
    assert filler.missing(wider) > 0
    assert price(wider, rates).start_seconds > price(begun, rates).start_seconds  # by epochs


def test_exits_alone_need_exact_features_of_the_final_head(plan: TrialPlan) -> None:
    alone = normal_form(replace(plan, heads=HeadsPlan("exits-only", (Exit(1, 4),))))
    last = plan.model.num_blocks - 1
    assert feature_records(alone) == ((1, 8), (last, 32))
    assert feature_bits(at(alone, bits=4)) == {1: 4, last: 32}
    assert feature_records(at(plan, bits=4)) == ((plan.split, 8),)


def test_exits_cost_more_of_everything(plan: TrialPlan, setting: Setting) -> None:
    rates = setting.rates
    sides = replace(plan, heads=HeadsPlan("with-tail", (Exit(1, 4),)))
    plain, more = price(plan, rates).estimate(0), price(sides, rates).estimate(0)
    assert more.train_seconds > plain.train_seconds
    assert more.spend_seconds > plain.spend_seconds
    assert more.storage_bytes > plain.storage_bytes


def test_an_estimate_counts_what_is_missing_and_nothing_else(filler: Filler, plan: TrialPlan, setting: Setting) -> None:
    rates = setting.rates
    forecast = Forecast(setting, {})

    def estimate(plan: TrialPlan) -> Estimate:
        return forecast.expected(plan, filler.missing(plan), []).estimate

    empty = estimate(plan)
    filler.fill([plan])
    filled = estimate(plan)
    assert empty.spend_seconds - filled.spend_seconds == pytest.approx(34 * price(plan, rates).fill_seconds)
    assert empty.train_seconds == filled.train_seconds  # on stored features, whatever the order of trials
    more = estimate(at(plan, alpha=0.1))
    training = price(at(plan, alpha=0.1), rates).loop_seconds + price(plan, rates).scoring_seconds
    assert more.spend_seconds - training == pytest.approx(10 * price(plan, rates).fill_seconds)


def test_what_is_filled_already_is_not_asked_for(filler: Filler, plan: TrialPlan, stand_in: InProcess) -> None:
    stand_in.jobs.clear()
    filler.fill([plan])
    filler.fill([plan, at(plan, alpha=0.01)])
    filler.fill([])
    assert [job.method for job in stand_in.jobs] == ["fill"]


def test_what_had_no_room_or_was_evicted_for_another_plan_is_missing(
    filler: Filler, plan: TrialPlan, stand_in: InProcess, tmp_path: Path
) -> None:
    stand_in.answer = lambda _: JobResult("result", Filling(5, 1.0, {}, 0, {}))
    filler.fill([plan])
    assert filler.missing(plan) == 34
    (folder := tmp_path / "records").mkdir()
    stand_in.answer = lambda _: filled(folder)
    filler.fill([plan])
    assert filler.missing(plan) == 0
    folder.rmdir()
    assert filler.missing(plan) == 34


def test_a_trial_that_stopped_early_teaches_by_the_epochs_it_ran(setting: Setting, plan: TrialPlan) -> None:
    long = replace(plan, recipe=replace(plan.recipe, epochs=10))
    short = replace(plan, recipe=replace(plan.recipe, epochs=1))
    values = {"train_seconds": price(short, setting.rates).train_seconds, "peak_bytes": 1.0}
    record = TrialRecord(0, "stopped", long, values=values, epochs=({"epoch": 1.0},))
    expected = Forecast(setting, {}).expected(long, 0, [record])
    assert expected.estimate.train_seconds == pytest.approx(expected.plain.train_seconds)


def test_codes_of_few_bits_need_room_for_the_eight_bit_ones_too(plan: TrialPlan) -> None:
    narrow, eight = at(plan, bits=1), at(plan, bits=8)
    shape = plan.model.blocks[plan.split].in_shape
    ones = np.ones(shape[0], np.float32)
    record = Codec(1, shape, ones * 0, ones, has_own_scales(1, shape)).record_bytes
    assert feature_bytes(narrow) - feature_bytes(eight) == plan.train_samples * record
    assert price(eight, nominal(eight.model)).storage_bytes == feature_bytes(eight) + weight_bytes(eight)


def test_one_pass_fills_every_cut_the_study_may_ask_for(filler: Filler, plan: TrialPlan, stand_in: InProcess) -> None:
    stand_in.jobs.clear()
    filler.prepare([plan, at(plan, split=2), at(plan, split=2, bits=4), at(plan, bits=16), at(plan, alpha=0.1)])
    (job,) = stand_in.jobs
    asked = {(one.split, one.cache.bits, one.data.alpha) for one in job.arguments["plans"]}
    assert asked == {(3, 8, 0.1), (2, 8, 0.1), (3, 16, 0.1)}


def test_a_pass_computes_in_one_precision(filler: Filler, plan: TrialPlan, stand_in: InProcess) -> None:
    stand_in.jobs.clear()
    in_int8 = replace(plan, runtime=replace(plan.runtime, precision="int8"))
    assert filler.missing(in_int8) == filler.missing(plan) + QUANTISING_SAMPLES
    filler.prepare([plan, in_int8, at(plan, split=2), at(in_int8, split=2)])
    asked = [[(one.split, one.runtime.precision) for one in job.arguments["plans"]] for job in stand_in.jobs]
    assert asked == [[(3, "fp32"), (2, "fp32")], [(3, "int8"), (2, "int8")]]
    assert filler.missing(in_int8) == 0
    assert filler.missing(at(in_int8, split=1)) == filler.missing(at(plan, split=1))  # quantised once for all cuts


def test_blocks_that_were_quantised_before_cost_nothing(plan: TrialPlan, request: pytest.FixtureRequest) -> None:
    blocks_file(plan.model.identity, "1").touch()
    filler: Filler = request.getfixturevalue("filler")
    in_int8 = replace(plan, runtime=replace(plan.runtime, precision="int8"))
    assert filler.missing(in_int8) == plan.read_samples


def test_preparing_stays_below_the_stores_cap(
    filler: Filler, plan: TrialPlan, store: Store, stand_in: InProcess
) -> None:
    stand_in.jobs.clear()
    filler.prepare([replace(plan, cache=replace(plan.cache, by="none"))])
    assert stand_in.jobs == [], "nothing is cached"
    store.cap_bytes = int(1.5 * feature_bytes(at(plan, alpha=0.1)))
    filler.prepare([plan, at(plan, split=2), at(plan, split=1)])
    (job,) = stand_in.jobs
    assert [one.split for one in job.arguments["plans"]] == [3]


def test_measured_seconds_replace_the_estimate_once_a_pass_was_long_enough(
    filler: Filler, plan: TrialPlan, stand_in: InProcess, setting: Setting
) -> None:
    guess = price(plan, setting.rates).fill_seconds
    assert filler.seconds_each(plan) == guess
    stand_in.answer = lambda _: filled()
    filler.fill([plan])
    assert filler.seconds_each(plan) == guess  # five samples measure the start-up
    noted = Filling(640, 64.0, {plan.split: 0.1}, 0, {(plan.split, 8): ()})
    stand_in.answer = lambda _: JobResult("result", noted)
    filler.fill([at(plan, alpha=0.1)])
    assert filler.seconds_each(plan) == 0.1


def test_a_pass_over_its_memory_is_parted(plan: TrialPlan, stand_in: InProcess, small_filler: Filler) -> None:
    passes: list[list[int]] = []

    def answer(job: Job) -> JobResult[Any]:
        splits = [one.split for one in job.arguments["plans"]]
        passes.append(splits)
        assert job.frees
        if 1 in splits:
            return JobResult("memory", most_bytes=20_000_000)
        return JobResult("result", Filling(34, 1.0, {}, 0, {(split, 8): () for split in splits}))

    stand_in.answer = answer
    small_filler.prepare([at(plan, split=split) for split in (3, 2, 1)])
    assert passes == [[3, 2, 1], [3], [2, 1], [2], [1]]
    assert [small_filler.missing(at(plan, split=split)) for split in (3, 2, 1)] == [0, 0, 34]
    for _ in range(2):  # each trial that asks for the other fails with the reason, without a pass
        with pytest.raises(UnfilledError, match=r"--memory 10 MB is too small .* took 20\.0 MB") as raised:
            small_filler.fill([at(plan, split=1)])
        assert raised.value.constraint == {"memory": pytest.approx(math.log(2))}
    assert len(passes) == 5


def test_a_study_that_memory_leaves_nothing_filled_for_is_refused(
    plan: TrialPlan, stand_in: InProcess, small_filler: Filler
) -> None:
    stand_in.answer = lambda _: JobResult("memory", most_bytes=20_000_000)
    with pytest.raises(UnfilledError, match="give more"):
        small_filler.prepare([at(plan, split=1)])


@pytest.mark.parametrize(
    "ended", [JobResult("deadline"), JobResult("result", Filling(5, 1.0, {}, 0, {}, stopped=True))]
)
def test_a_pass_that_the_time_ends_is_refused_and_not_counted(
    filler: Filler, plan: TrialPlan, stand_in: InProcess, ended: JobResult[Any]
) -> None:
    stand_in.answer = lambda _: ended
    with pytest.raises(UnfilledError, match="those that are done are kept: give more, and --resume"):
        filler.fill([plan])
    assert filler.missing(plan) == 34


def test_other_ends_are_distinguished(filler: Filler, plan: TrialPlan, stand_in: InProcess) -> None:
    stand_in.answer = lambda _: JobResult("failure", failure=Failure("hat.jpg: no image", ""))
    with pytest.raises(TunerError, match=r"^hat\.jpg: no image$"):
        filler.fill([plan])
    stand_in.answer = lambda _: JobResult("crashed", exit_code=-9)
    with pytest.raises(TunerError, match="the frozen prefix was ended by SIGKILL: another program or a user ended it"):
        filler.fill([plan])
    stand_in.answer = lambda _: JobResult("interrupted")
    with pytest.raises(KeyboardInterrupt):
        filler.fill([plan])


def test_filling_is_a_cost_of_its_own_whatever_was_stored(setting: Setting, plan: TrialPlan) -> None:
    values = {"local_accuracy": 0.5, "global_accuracy": 0.5, "train_seconds": 1.0, "peak_bytes": 1e6}
    base = TrialRecord(trial=0, state="failed", plan=plan)
    rates = setting.rates
    record = scored_record(setting, base, Outcome(values), price(plan, rates).fill_seconds, {})
    assert record.values["train_seconds"] == 1.0
    assert record.values["fill_seconds"] == pytest.approx(22 * price(plan, rates).fill_seconds)
    assert record.values["peak_bytes"] == max(1e6, rates.fill_peak_bytes)
