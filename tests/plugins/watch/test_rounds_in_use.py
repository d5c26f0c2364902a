"""Rounds in service: broken ones are passed over, a rollback is noticed, also while a round trains."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.plugins.watch.lived import ALWAYS, Copying, Make, lived
from tuner.bundle.rounds import EXPORTED, rounds_in_use
from tuner_watch.commands import format_status
from tuner_watch.serving import UnusableError, install_round, roll_back
from tuner_watch.watch import status


def test_a_broken_round_is_passed_over(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(2.0), pointing(2.0)], [0.5])
    install_round(bundle, make("new", [pointing(2.0), pointing(2.0)], [0.5]))
    install_round(bundle, make("newer", [pointing(2.0), pointing(2.0)], [0.5]))
    (bundle / "device/rounds/0002/segments/1.onnx").write_bytes(b"torn")
    with serve(bundle) as service:
        assert service.infer(sample(2)).label == "c"
        assert service.state.round == "0001"
        (problem,) = service.state.problems
        assert problem.line.startswith("round 0002 is not used: ")


def test_a_round_that_breaks_as_it_runs_is_passed_over(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(2.0)])
    wide = np.zeros((4, 3))
    install_round(bundle, make("new", [pointing(2.0), wide], [0.9]))  # the second segment wants another width
    content = json.loads((bundle / "bundle.json").read_text())
    assert content["input_shape"] == [3]
    with serve(bundle) as service:
        assert service.state.round == "0001"
        assert service.infer(sample(2, strength=0.1)).label == "c"
        assert service.state.round == EXPORTED
        assert "failed while it ran" in service.state.problems[-1].line


def test_a_bundle_that_never_works_is_reported(make: Make, pointing: Make, serve: Make, sample: Make) -> None:
    with (
        serve(make("broken", [pointing(2.0), np.zeros((4, 3))], [0.9])) as service,
        pytest.raises(UnusableError, match="neither a round nor the exported bundle can be used"),
    ):
        service.infer(sample(2, strength=0.1))


def test_after_a_rollback_the_status_is_true_and_new_samples_count(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    bundle, better = make("old", [pointing(2.0)]), make("new", [pointing(2.0, (1, 0, 2))])
    with serve(bundle, Copying(better)) as service:
        lived(service, sample, 90, labels="bac")
        service.tend(wait=True)
        lived(service, sample, 7, labels="bac", first=90)
    assert "a round on 90 samples was accepted: " in format_status(status(bundle))
    roll_back(bundle)
    shown = status(bundle)
    assert (shown.round, shown.rounds[0].name) == (EXPORTED, "0001")
    assert "was accepted as 0001, which is not in use any more: " in format_status(shown)
    with serve(bundle, Copying(better)) as service:
        assert service.state.new_samples == 7
        assert service.outlook() == "the next round of training comes after 53 more (--enough 60)"
    with serve(bundle, Copying(better), readings=replace(ALWAYS, load=2.5)) as service:
        lived(service, sample, 53, labels="bac", first=97)
        assert service.outlook() == (
            "a round is due, but the device is busy: load 2.50 per processor, a round starts at 0.50 or less; "
            "with --now it does not wait"
        )


def test_a_rollback_is_noticed(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(2.0)])
    install_round(bundle, make("new", [pointing(2.0, (1, 0, 2))]))
    with serve(bundle) as service:
        assert service.infer(sample(0)).label == "b"
        roll_back(bundle)
        assert service.infer(sample(0)).label == "a"
        assert service.state.answers == 1


def test_a_round_trained_from_a_model_that_was_rolled_back_is_not_put_in_place(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0, (1, 0, 2))]))
    save, rolled_back = trainer.save, threading.Event()

    def save_later(out: Path) -> None:
        assert rolled_back.wait(60)
        save(out)

    trainer.save = save_later  # type: ignore[method-assign]  # this one's
    install_round(bundle, make("first", [pointing(3.0)]))
    with serve(bundle, trainer) as service:
        lived(service, sample, 90, labels="bac")
        service.tend()
        roll_back(bundle)
        rolled_back.set()
        verdict = service.tend(wait=True)
        assert verdict is not None
        assert verdict.reason == (
            "the new bundle cannot be put in place (round 0001, which it was trained from, was replaced by 0000 "
            "meanwhile): the old one stays"
        )
        assert rounds_in_use(bundle) == (EXPORTED,)
        assert service.infer(sample(0)).label == "a"
    assert not (bundle / "device/made").exists()
