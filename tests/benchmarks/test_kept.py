"""Outcomes in a file: a benchmark that was cut, or is run in pieces, measures each once."""

from pathlib import Path

from benchmarks.lib.kept import Kept
from benchmarks.papers.growth.ric_grow import FULL, LENET, MOBILENET, OPT, RIC, judged, same, table
from tuner.plan.parts import RecipePlan
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome


def test_an_outcome_is_measured_once_for_each_key(tmp_path: Path) -> None:
    found = Outcome({"accuracy": 0.5}, ({"loss": 1.0},), "", ("a note",), {"local": ClassCounts(((0, 1, 2),))})
    key = ("MNIST", 0, RecipePlan(epochs=3))
    runs: list[int] = []

    def run() -> Outcome:
        runs.append(len(runs))
        return found

    file = tmp_path / "kept.jsonl"
    assert Kept(file).outcome(key, run) == Kept(file).outcome(key, run) == found
    assert len(runs) == 1
    Kept(file).outcome(("MNIST", 0, RecipePlan(epochs=4)), run)  # another recipe is another outcome
    assert len(runs) == 2
    assert len(Kept(file).read()) == 2
    Kept(None).outcome(key, run)
    assert len(runs) == 3


def scored(accuracy: float, parameters: float = 100.0) -> Outcome:
    values = {"local_accuracy": accuracy, "parameters": parameters, "flops": parameters, "train_seconds": 1.0}
    epoch = {"loss": 0.1, "seconds": 1.0, "local_accuracy": accuracy, "controller_seconds": 0.001}
    return Outcome(values, (epoch,) * 3)


def test_arms_are_compared_on_the_same_people() -> None:
    found = {
        FULL: {0: scored(0.5), 3: scored(0.9), 4: scored(0.8)},
        RIC: {0: scored(0.5, 4), 3: scored(0.9, 4), 4: scored(0.8, 4)},
        OPT: {0: scored(0.5, 4), 3: scored(0.9, 4), 4: scored(0.8, 4)},
        "pruned": {3: scored(0.895, 4)},
    }
    rows = {row["arm"]: row for row in table("title", found, 20)}
    assert rows["pruned"]["s to near full"] != "–"  # its own person's full network has 0.9, the mean is 0.73
    assert [claim.met for claim in judged(LENET, "title", found, 20)] == [True, True, False, True]
    slow = {FULL: {3: scored(0.85), 4: scored(0.75), 5: scored(0.1)}}
    assert not same(found, slow).met
    assert same(found, {FULL: {3: scored(0.9), 4: scored(0.8), 5: scored(0.1)}}).met  # 5 has no partner
    assert not judged(MOBILENET, "title", {**found, RIC: {0: scored(0.4, 4)} | found[OPT] | {4: scored(0.7, 4)}}, 9)[
        0
    ].met
