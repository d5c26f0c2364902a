"""The answer of a run in one sentence."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tuner.cli.text.run import format_trial, print_run
from tuner.errors import RunError, UsageError
from tuner.metrics import wilson
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.results.folder import write_run
from tuner.results.records.baseline import Baseline
from tuner.results.records.classes import Classes, listed
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective
from tuner.results.views.answer import answer
from tuner.results.views.pick import pick_trial
from tuner.results.views.points import point

OLD = Path(__file__).parents[2] / "fixtures"
UNNAMED = Classes()
DIGITS = Classes(tuple("0123456789"), (7, 8, 9), 7)


def run_of(name: str, classes: Classes = UNNAMED) -> Run:
    """Return a run, with other names of its classes."""
    run = Run.open(OLD / name / "run")
    return replace(run, info=replace(run.info, classes=classes))


def measured(run: Run, **values: float) -> Run:
    """Return a run whose best trial measured something else."""
    records = tuple(
        replace(record, values=record.values | values) if record.trial == run.best else record for record in run.records
    )
    return replace(run, records=records)


def test_new_classes_are_called_by_name() -> None:
    assert answer(run_of("digits", DIGITS)) == (
        "Training the last 2 of 4 blocks on 180 of the user's samples and 77 old ones for 0.257 s takes 7–9 from 0.0 % "
        "to 99.1 % and 0–6 from 99.6 % to 92.1 %."
    )


def test_without_names_it_is_the_users_samples_and_the_original_data() -> None:
    assert answer(run_of("digits")).endswith(
        "takes the accuracy on the user's samples from 0.0 % to 99.1 % and on the original data from 99.6 % to 92.1 %."
    )


def test_classes_that_the_model_knew_do_not_stand_for_the_users_samples() -> None:
    same = Classes(("fist", "wave", "pinch", "rest"), (0, 1, 2, 3), 4)
    assert "takes the accuracy on the user's windows from 41.2 % to 76.2 %" in answer(run_of("signals", same))


def test_exits_are_worth_what_a_prediction_saves() -> None:
    assert answer(run_of("exits", DIGITS)).endswith(
        "takes 7–9 from 0.0 % to 94.4 %, 0–6 from 99.6 % to 92.1 % and a prediction from 1.2 MFLOP to 1.14 MFLOP."
    )


def test_several_labels_are_scored_by_auc() -> None:
    run = run_of("digits", replace(DIGITS, several=True))
    run = replace(run, info=replace(run.info, task=replace(run.info.task, loss="multi-label")))
    assert "takes the macro AUC on the user's samples from 0.0 % to 99.1 %" in answer(run)


def test_samples_without_labels_are_scored_by_agreement() -> None:
    run = run_of("digits", DIGITS)
    task = replace(run.info.task, labelled=False)
    run = replace(run, info=replace(run.info, task=task, baselines=(Baseline("untouched", {"local_accuracy": 1.0}),)))
    assert "takes agreement with the given model on 7–9 from 100.0 % to 99.1 %" in answer(run)


def test_no_gain_is_no_answer() -> None:
    run = run_of("digits", DIGITS)
    run = replace(run, info=replace(run.info, baselines=(Baseline("untouched", {"local_accuracy": 0.995}),)))
    assert answer(run) == (
        "Nothing that was tried is better on 7–9 than the untouched model: it reaches 99.5 %, the best trial 99.1 %."
    )


def test_an_empty_front_says_why() -> None:
    run = run_of("digits", DIGITS)
    refused = tuple(replace(record, constraint={"memory": 0.5}, reason="too much") for record in run.records)
    empty = replace(run, records=refused, front=(), knee=None, best=None)
    assert answer(empty).startswith("No trial obeys every limit: 4 of 4 trials do not count because of --memory")


def test_long_times_are_minutes_and_one_block_is_the_last() -> None:
    run = measured(run_of("digits", DIGITS), train_seconds=245.0)
    plan = run.record(run.front[0]).plan
    assert isinstance(plan, TrialPlan)
    records = tuple(replace(record, plan=replace(plan, split=3)) for record in run.records)
    assert answer(replace(run, records=records)).startswith("Training the last block on")
    assert " for 4m 05s takes " in answer(replace(run, records=records))


def test_a_head_that_is_solved_for_is_not_trained() -> None:
    run = run_of("digits", DIGITS)
    plan = run.record(run.front[0]).plan
    assert isinstance(plan, TrialPlan)
    edit = TailEdit.of("closed-form", EditTraits(solves=True))
    records = tuple(replace(record, plan=replace(plan, split=3, shape=(edit,))) for record in run.records)
    said = answer(replace(run, records=records))
    assert said.startswith("Solving for the last block on 180 of the user's samples and 77 old ones in 0.257 s takes ")


def test_a_head_is_shown_with_its_score_on_all_local_samples() -> None:
    run = measured(run_of("digits", DIGITS), local_loo_accuracy=0.9)
    (used,) = {plan.local_used for trial in run.front if (plan := run.record(trial).plan) is not None}
    assert run.left_out_samples == used == 287
    assert [one.title for one in run.columns][-1] == "local leave-one-out accuracy"
    written = StringIO()
    print_run(run, Console(width=300, file=written))
    shown = written.getvalue()
    assert "90.0 % (86–93)" in shown
    assert "; solved heads also on all 287 local samples, by leave-one-out; (95 % intervals)" in shown
    assert "90.0 % (86–93)" in format_trial(run, run.record(run.best or 0))
    assert point(run, run.best or 0).intervals["local_loo_accuracy"] == wilson(0.9, 287)
    with pytest.raises(UsageError, match="there is no value 'local_loo_accuracy'"):
        pick_trial(run, "max(local_loo_accuracy)")


def test_accuracy_that_nobody_measured_before_has_no_from() -> None:
    run = run_of("digits", DIGITS)
    assert "takes 7–9 to 99.1 % and 0–6 to 92.1 %." in answer(replace(run, info=replace(run.info, baselines=())))


def test_objectives_other_than_accuracy_need_no_sentence_of_their_own() -> None:
    run = run_of("digits", DIGITS)
    objectives = (*run.info.objectives, Objective("energy_joules", "minimise", "J"))
    assert answer(replace(run, info=replace(run.info, objectives=objectives))) == answer(run)


def test_what_a_prediction_costs_is_said_where_exits_change_it() -> None:
    run = run_of("digits", DIGITS)
    whole = float(sum(block.flops for block in run.info.model.blocks))
    flops = Objective("mean_flops", "minimise", "FLOP")
    with_flops = replace(run, info=replace(run.info, objectives=(*run.info.objectives, flops)))
    assert answer(measured(with_flops, mean_flops=whole)) == answer(run)
    assert answer(measured(with_flops, mean_flops=whole / 2)).endswith(
        f" and a prediction from {flops.text(whole)} to {flops.text(whole / 2)}."
    )


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("7", "8", "9"), "7–9"),
        (("1", "3", "5"), "1, 3 and 5"),
        (("3", "4"), "3 and 4"),
        (("cup",), "cup"),
        (("cup", "plate", "fork", "knife"), "cup, plate, fork and knife"),
        (("a", "b", "c", "d", "e"), ""),
        (("a name that is much too long for a sentence",), ""),
        ((), ""),
    ],
)
def test_few_names_are_listed(names: tuple[str, ...], text: str) -> None:
    assert listed(names) == text


@pytest.mark.parametrize("classes", [Classes(("a",), (1,), 0), Classes(("a",), (-1,), 0), Classes(("a",), (0,), 2)])
def test_rows_of_no_class_are_refused(classes: Classes, tmp_path: Path) -> None:
    write_run(tmp_path, run_of("digits", classes).info)
    with pytest.raises(RunError, match="classes: a row is none of the 1 labels"):
        Run.open(tmp_path)
