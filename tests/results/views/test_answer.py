"""The answer of a run in a few words, why its best trial is that, and a plan for somebody who knows no terms."""

import re
from collections.abc import Sequence
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
from tuner.plan.text import plain
from tuner.plan.trial import TrialPlan
from tuner.results.folder import write_run
from tuner.results.records.baseline import Baseline
from tuner.results.records.classes import Classes, listed
from tuner.results.records.trial import plan_of
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective
from tuner.results.views.answer import answer, not_judged, of_share
from tuner.results.views.pick import pick_trial
from tuner.results.views.reasons import reasons
from tuner.search.rungs import FINAL, at_rung
from tuner_report.charts.points import point

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
PROBE = Baseline("linear probe", {"local_accuracy": 0.95, "global_accuracy": 0.0})
SENTENCE = (
    "Your classes 7–9: 99.1 % right (95–100); the model itself knew none of them. Known classes: 99.6 → 92.1 % (88–95)."
)
ANSWERS = {
    "new classes by name": (KNOWN, SENTENCE),
    "without names": (
        run_of("digits"),
        "Your samples: 99.1 % right (95–100); the model as it came 0.0 %. Original data: 99.6 → 92.1 % (88–95).",
    ),
    "next to what anybody would try first": (
        info_with(KNOWN, baselines=(*KNOWN.info.baselines, PROBE)),
        "99.1 % right (95–100); a linear probe 95.0 %; the model itself knew none of them.",
    ),
    "classes that the model knew": (
        run_of("signals", GESTURES),
        "Your windows: 76.2 % right (69–82); the model as it came 41.2 %. Original data: 81.9 → 48.8 % (41–56).",
    ),
    "exits": (
        run_of("exits", DIGITS),
        (
            "7–9: 94.4 % right (88–97); the model itself knew none of them. Known classes: 99.6 → 92.1 % (88–95). "
            "A prediction: 1.2 MFLOP → 1.14 MFLOP."
        ),
    ),
    "several labels": (
        task_with(run_of("digits", DIGITS), loss="multi-label"),
        "Your samples: macro AUC 99.1 %; the model as it came 0.0 %. Original data: 99.6 → 92.1 %.",
    ),
    "no labels": (
        task_with(info_with(KNOWN, baselines=(Baseline("untouched", {"local_accuracy": 1.0}),)), labelled=False),
        "Your classes 7–9: as the given model in 99.1 % (95–100). Known classes: 92.1 % (88–95).",
    ),
    "no gain": (
        info_with(KNOWN, baselines=(Baseline("untouched", {"local_accuracy": 0.995}),)),
        (
            "Nothing that was tried is better than the model as it came: your classes 7–9 99.5 % right (96–100), "
            "with the best trial 99.1 % right (95–100)."
        ),
    ),
    "nothing measured before": (
        info_with(KNOWN, baselines=()),
        "Your classes 7–9: 99.1 % right (95–100); the model itself knew none of them. Known classes: 92.1 % (88–95).",
    ),
    "an error in the targets' unit": (measured(KNOWN, local_mae=1.25), "right (95–100) (mean absolute error 1.25);"),
    "objectives that need no sentence": (info_with(KNOWN, objectives=(*KNOWN.info.objectives, ENERGY)), SENTENCE),
    "a prediction that costs the same": (measured(WITH_FLOPS, mean_flops=WHOLE), SENTENCE),
    "a prediction that costs less": (
        measured(WITH_FLOPS, mean_flops=WHOLE / 2),
        f" A prediction: {FLOPS.text(WHOLE)} → {FLOPS.text(WHOLE / 2)}.",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_run_is_answered_in_a_few_words(name: str) -> None:
    run, said = ANSWERS[name]
    assert said in answer(run)
    if said.endswith(".") and said[0].isupper():
        assert answer(run) == said


def test_a_trial_of_a_low_rung_says_which_share_of_the_samples_it_saw() -> None:
    assert of_share(KNOWN, 0) == ""
    plan = KNOWN.records[0].plan
    assert plan is not None
    eighth = replace(KNOWN.records[0], plan=at_rung(plan, 3))
    said = of_share(replace(KNOWN, records=(eighth, *KNOWN.records[1:])), 0)
    assert said.startswith("trial 0 was trained on an eighth of your samples (23 of 180) and judged on 14 of 107, ")


def test_trials_after_a_cross_validation_are_counted_as_they_are_not_in_the_table() -> None:
    assert not_judged(KNOWN) == ""
    plan = KNOWN.records[0].plan
    assert plan is not None
    judged = replace(KNOWN.records[0], rung=FINAL, plan=at_rung(plan, FINAL))
    run = replace(KNOWN, records=(judged, replace(judged, trial=1), *KNOWN.records[2:]), front=(0, 1), best=0)
    assert not_judged(run).startswith("2 trials were not cross-validated for lack of time, so not compared: --resume")
    assert not_judged(replace(run, records=run.records[:2])) == ""


def test_scores_of_other_samples_are_not_set_against_each_other() -> None:
    assert " → " in answer(KNOWN)
    lower = tuple(replace(one, plan=at_rung(one.plan, 1)) if one.plan else one for one in KNOWN.records)
    assert " → " not in answer(replace(KNOWN, records=lower))


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
    print_run(run, Console(width=300, file=written), details=True)
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


def plans_told(run: Run) -> str:
    plan = run.record(run.best or 0).plan
    assert plan is not None
    return plain(plan)


def test_a_plan_is_told_without_terms() -> None:
    assert plans_told(KNOWN) == "trains the last 2 of 4 blocks on 180 of your samples and 77 known ones, in 4 epochs"
    solves = planned(KNOWN, split=3, shape=(TailEdit.of("closed-form", EditTraits(solves=True)),))
    assert plans_told(solves) == "computes the head in closed form from 180 of your samples and 77 known ones"
    assert "the last 2 of 4 blocks and 1 early exit on" in plans_told(run_of("exits", DIGITS))
    plan = KNOWN.record(0).plan
    assert plan is not None
    part = planned(KNOWN, data=replace(plan.data, share=0.25))
    assert re.search(r"on \d+ of your 180 samples", plans_told(part))


def front_of(run: Run, best: int, *values: tuple[float, float, float], forgetting: float | None = None) -> Run:
    """Return a run whose front has these local and global accuracies and seconds."""
    names = ("local_accuracy", "global_accuracy", "train_seconds")
    like = run.record(run.front[0])
    records = tuple(
        replace(like, trial=trial, values=like.values | dict(zip(names, own, strict=True)))
        for trial, own in enumerate(values)
    )
    front, config = tuple(range(len(values))), run.info.config
    info = replace(run.info, config=replace(config, limits=replace(config.limits, forgetting=forgetting)))
    return replace(run, info=info, records=records, front=front, shortlist=front, best=best)


def test_the_pick_says_why_what_it_gives_up_and_what_a_cheaper_one_would_save() -> None:
    run = front_of(KNOWN, 0, (0.90, 0.985, 9.0), (0.99, 0.40, 8.0), (0.91, 0.984, 9.5), (0.88, 0.995, 3.0))
    assert reasons(run) == (
        "Trial 0 is picked: best on your classes 7–9 of those that lose at most 2.0 points on the known classes. "
        "Trial 1 has 99.0 % there, but loses 59.6 points. "
        "Trial 2 has 91.0 %, which 107 samples cannot tell from 90.0 %. "
        "Trial 3 keeps 1.0 points more of these, for 2.0 points less on yours. "
        "The next faster, trial 3, trains in 3 s instead of 9 s, for 2.0 points less on yours."
    )
    right = front_of(KNOWN, 1, (1.0, 0.98, 9.0), (106 / 107, 0.995, 9.0), (0.90, 0.996, 9.0))
    assert reasons(right).startswith(
        "Trial 1 is picked: of those with at most one validation error on your classes 7–9, it has the highest "
        "accuracy on the known classes. Trial 0 has 100.0 %, but 1.5 points less on the known classes. "
    )
    alone = front_of(KNOWN, 0, (0.90, 0.985, 9.0), forgetting=0.05)
    assert reasons(alone) == (
        "Trial 0 is picked: best on your classes 7–9 of those that lose at most 5.0 points on the known classes."
    )
    forgets = front_of(KNOWN, 0, (0.90, 0.5, 9.0), (0.80, 0.55, 9.5))
    said = reasons(forgets)
    assert "the largest sum of both scores, as all lose more than 2.0 points on the known classes." in said
    assert said.endswith("No other of the front trains much faster.")
    assert reasons(replace(run, best=None)) == ""
    for scores, told in (((0.9, 0.9), "Of the 2 with 90.0 %, it has the lowest"), ((0.9, 0.91), "and a higher")):
        equal = front_of(KNOWN, 0, *((score, 0.985, 9.0) for score in scores))
        losses = [replace(one, values={**one.values, "local_loss": 0.1 + one.trial}) for one in equal.records]
        assert f"{told} validation loss" in reasons(replace(equal, records=tuple(losses)))
        solved = [replace(one, values={**one.values, "local_loo_accuracy": 0.85}) for one in losses[:1]]
        assert "validation loss" not in reasons(replace(equal, records=(*solved, *losses[1:]))), "not that of a head"


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ((0.9, 0.9), "Of the 2 with 90.0 %, it trained the most; their validation losses cannot be told apart."),
        ((0.9, 0.91), "from 90.0 %; nor can they tell the validation losses apart, and it trained less."),
    ],
)
def test_the_pick_says_where_more_training_decides(scores: Sequence[float], told: str) -> None:
    run = front_of(KNOWN, 0, *((score, 0.985, 9.0) for score in scores))
    records = [replace(one, values={**one.values, "local_loss": 0.21 - 0.01 * one.trial}) for one in run.records]
    plan = plan_of(records[1])
    records[1] = replace(records[1], plan=replace(plan, recipe=replace(plan.recipe, epochs=1)))
    assert plan_of(records[0]).recipe.epochs > 1
    assert told in reasons(replace(run, records=tuple(records)))
