"""How a front grew, its points with intervals, and its classes one by one: what a report shows."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.metrics import wilson
from tuner.results.records.baseline import Baseline
from tuner.results.records.classes import Classes
from tuner.results.records.counts import ClassCounts
from tuner.results.run import Run
from tuner_report.charts.history import hypervolume
from tuner_report.charts.points import baseline_point, interval, point, references
from tuner_report.classes import class_scores, confusions
from tuner_report.sections import classes

RUN = Run.open(Path(__file__).parents[2] / "fixtures" / "digits" / "run")
COUNTS = ClassCounts(((7, 3, 4), (9, 2, 2)), ((7, 1, 1),))


def test_the_hypervolume_grows_trial_by_trial() -> None:
    (stretch,) = hypervolume(RUN)
    assert (stretch.rung, stretch.share, len(stretch.points)) == (0, 1.0, 4)
    areas = [area for _, area in stretch.points]
    assert areas == sorted(areas)
    assert areas[0] == pytest.approx(0.9907 * 0.9206, abs=1e-3)
    assert stretch.points[-1][0] == pytest.approx(sum(record.spent_seconds for record in RUN.records))


def test_each_rung_has_a_stretch_of_its_own() -> None:
    records = tuple(replace(record, rung=1 if record.trial < 2 else 0) for record in RUN.records)
    low, high = hypervolume(replace(RUN, records=records))
    assert (low.rung, len(low.points), high.rung, len(high.points)) == (1, 2, 0, 2)
    assert hypervolume(replace(RUN, records=())) == []


def test_points_have_the_intervals_of_their_validation_samples() -> None:
    member = point(RUN, 3)
    assert member.intervals["local_accuracy"] == wilson(member.values["local_accuracy"], 107)
    assert "train_seconds" not in member.intervals
    assert baseline_point(RUN).intervals["global_accuracy"] == wilson(RUN.info.untouched.values["global_accuracy"], 252)
    several = replace(RUN, info=replace(RUN.info, task=replace(RUN.info.task, loss="multi-label")))
    assert interval(several, "local_accuracy", 0.9) is None


def test_a_baseline_is_the_best_of_its_kind_that_obeys_the_limits() -> None:
    assert references(RUN) == {"head only": None, "everything": None}
    plans = {0: 3, 1: 3, 2: 0, 3: 2}
    records = tuple(
        replace(record, plan=replace(record.plan, split=plans[record.trial])) for record in RUN.records if record.plan
    )
    of = {name: record and record.trial for name, record in references(replace(RUN, records=records)).items()}
    assert of == {"head only": 0, "everything": 2}
    over = tuple(replace(one, constraint={"memory": 0.1}) if one.trial == 0 else one for one in records)
    of = {name: record and record.trial for name, record in references(replace(RUN, records=over)).items()}
    assert of == {"head only": 1, "everything": 2}


def test_classes_are_compared_with_what_the_given_model_had_right() -> None:
    info = replace(RUN.info, classes=Classes(tuple("0123456789"), (7, 9), 7))
    info = replace(info, baselines=(Baseline("untouched", classes={"local": ClassCounts(((7, 1, 4), (9, 0, 5)))}),))
    run, record = replace(RUN, info=info), replace(RUN.records[0], classes={"local": COUNTS})
    seven, nine = class_scores(run, record, "local")
    assert (seven.name, seven.samples, seven.before, seven.after, seven.change) == ("7", 4, 0.25, 0.75, 0.5)
    assert seven.interval == wilson(0.75, 4)
    assert (nine.before, nine.after) == (None, 1.0)  # scored on other samples: not comparable
    (confusion,) = confusions(run, record, "local")
    assert (confusion.name, confusion.taken_for, confusion.count, confusion.samples) == ("7", "1", 1, 4)
    assert class_scores(run, record, "global") == []
    assert confusions(run, record, "global") == []
    assert "1 pair of classes was confused only once and is not listed" in classes(run, record)
    often = replace(COUNTS, confused=((7, 1, 2), (7, 9, 1), (9, 1, 1)))
    page = classes(run, replace(record, classes={"local": often}))
    assert "2 of 4" in page
    assert "1 of " not in page.partition("<details>")[2]
    assert "2 pairs of classes were confused only once and are not listed" in page


def test_a_row_without_a_name_has_its_number() -> None:
    record = replace(RUN.records[0], classes={"local": COUNTS})
    run = replace(RUN, info=replace(RUN.info, classes=Classes()))
    assert [score.name for score in class_scores(run, record, "local")] == ["class 7", "class 9"]
