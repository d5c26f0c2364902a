"""The answer of a run in one sentence."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

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


def info_with(run: Run, **changes: Any) -> Run:
    return replace(run, info=replace(run.info, **changes))


def task_with(run: Run, **changes: Any) -> Run:
    return info_with(run, task=replace(run.info.task, **changes))


def planned(run: Run, **changes: Any) -> Run:
    """Return a run all of whose trials have another plan."""
    plan = run.record(run.front[0]).plan
    assert isinstance(plan, TrialPlan)
    return replace(run, records=tuple(replace(record, plan=replace(plan, **changes)) for record in run.records))


KNOWN = run_of("digits", DIGITS)
GESTURES = Classes(("fist", "wave", "pinch", "rest"), (0, 1, 2, 3), 4)
ENERGY = Objective("energy_joules", "minimise", "J")
FLOPS = Objective("mean_flops", "minimise", "FLOP")
WHOLE = float(sum(block.flops for block in KNOWN.info.model.blocks))
WITH_FLOPS = info_with(KNOWN, objectives=(*KNOWN.info.objectives, FLOPS))
SENTENCE = (
    "Training the last 2 of 4 blocks on 180 of the user's samples and 77 old ones for 0.257 s takes 7–9 from 0.0 % "
    "to 99.1 % and 0–6 from 99.6 % to 92.1 %."
)
ANSWERS = {
    "new classes by name": (KNOWN, SENTENCE),
    "without names": (
        run_of("digits"),
        "takes the accuracy on the user's samples from 0.0 % to 99.1 % and on the original data from 99.6 % to 92.1 %.",
    ),
    "classes that the model knew": (
        run_of("signals", GESTURES),
        "takes the accuracy on the user's windows from 41.2 % to 76.2 %",
    ),
    "exits": (
        run_of("exits", DIGITS),
        "takes 7–9 from 0.0 % to 94.4 %, 0–6 from 99.6 % to 92.1 % and a prediction from 1.2 MFLOP to 1.14 MFLOP.",
    ),
    "several labels": (
        task_with(run_of("digits", replace(DIGITS, several=True)), loss="multi-label"),
        "takes the macro AUC on the user's samples from 0.0 % to 99.1 %",
    ),
    "no labels": (
        task_with(info_with(KNOWN, baselines=(Baseline("untouched", {"local_accuracy": 1.0}),)), labelled=False),
        "takes agreement with the given model on 7–9 from 100.0 % to 99.1 %",
    ),
    "no gain": (
        info_with(KNOWN, baselines=(Baseline("untouched", {"local_accuracy": 0.995}),)),
        "Nothing that was tried is better on 7–9 than the untouched model: it reaches 99.5 %, the best trial 99.1 %.",
    ),
    "nothing measured before": (info_with(KNOWN, baselines=()), "takes 7–9 to 99.1 % and 0–6 to 92.1 %."),
    "one block": (planned(KNOWN, split=3), "Training the last block on"),
    "minutes": (measured(KNOWN, train_seconds=245.0), " for 4m 05s takes "),
    "a head that is solved for": (
        planned(KNOWN, split=3, shape=(TailEdit.of("closed-form", EditTraits(solves=True)),)),
        "Solving for the last block on 180 of the user's samples and 77 old ones in 0.257 s takes ",
    ),
    "objectives that need no sentence": (info_with(KNOWN, objectives=(*KNOWN.info.objectives, ENERGY)), SENTENCE),
    "a prediction that costs the same": (measured(WITH_FLOPS, mean_flops=WHOLE), SENTENCE),
    "a prediction that costs less": (
        measured(WITH_FLOPS, mean_flops=WHOLE / 2),
        f" and a prediction from {FLOPS.text(WHOLE)} to {FLOPS.text(WHOLE / 2)}.",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_run_is_answered_in_one_sentence(name: str) -> None:
    run, said = ANSWERS[name]
    assert said in answer(run)
    if said.endswith(".") and said[0].isupper():
        assert answer(run) == said


def test_an_empty_front_says_why() -> None:
    run = run_of("digits", DIGITS)
    refused = tuple(replace(record, constraint={"memory": 0.5}, reason="too much") for record in run.records)
    empty = replace(run, records=refused, front=(), knee=None, best=None)
    assert answer(empty).startswith("No trial obeys every limit: 4 of 4 trials do not count because of --memory")


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
