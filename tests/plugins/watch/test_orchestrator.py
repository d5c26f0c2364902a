"""The service: explores, stores samples, asks for rounds, accepts better models only, and continues to answer."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tuner.runtime
from tests.plugins.watch.lived import ALWAYS, POLICY, Copying, Make, lived, round_training
from tuner.arrays import Flags
from tuner.bundle.rounds import EXPORTED, rounds_in_use
from tuner.errors import BundleError, TaskError
from tuner.runtime import Bundle
from tuner_store.held import clear_ring, forget_rounds
from tuner_watch.conditions import Conditions, Readings
from tuner_watch.monitor import Watch
from tuner_watch.orchestrator import (
    NO_TRAINER,
    READ_SECONDS,
    RESTING_SECONDS,
    WAITING_SECONDS,
    Exploration,
    Orchestrator,
    Policy,
    World,
    spare,
)
from tuner_watch.ring import Ring
from tuner_watch.round import RoundTraining
from tuner_watch.state import SAVE_SECONDS, read_state


def test_programs_find_the_service_in_the_runtime_too() -> None:
    offered = (tuner.runtime.Orchestrator, tuner.runtime.Policy, tuner.runtime.World, tuner.runtime.Ring)
    assert offered == (Orchestrator, Policy, World, Ring)
    assert tuner.runtime.RoundTraining is RoundTraining
    with pytest.raises(AttributeError, match=r"'tuner\.runtime' has no attribute 'Orchestra'"):
        _ = tuner.runtime.Orchestra


def test_answers_are_counted_and_remembered(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("two", [pointing(2.0), pointing(3.0)], [0.6])
    with serve(bundle) as service:
        service.infer(sample(0, strength=4.0))
        service.infer(sample(1, strength=0.1))
    state = read_state(bundle)
    assert (state.answers, state.left, state.new_samples) == (2, (1, 1), 2)
    with serve(bundle) as service:
        service.infer(sample(0, strength=4.0))
        assert (service.state.answers, service.state.new_samples, len(service.ring)) == (3, 2, 2)


def test_only_one_process_watches_a_bundle_and_none_what_is_no_bundle(
    make: Make, pointing: Make, serve: Make, tmp_path: Path
) -> None:
    bundle = make("one", [pointing(2.0)])
    with serve(bundle), pytest.raises(BundleError, match="is watched already"):
        serve(bundle)
    serve(bundle).close()
    with pytest.raises(BundleError, match="is not a bundle"):
        serve(tmp_path)
    assert not (tmp_path / "device").exists()


def test_a_better_model_is_accepted(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0, (1, 0, 2))]))
    with serve(bundle, trainer) as service:
        lived(service, sample, 90, labels="bac")
        assert service.waiting() is None
        verdict = service.tend(wait=True)
        assert verdict is not None
        assert verdict.accepted, verdict
        assert service.infer(sample(0, 1000)).label == "b"
        assert rounds_in_use(bundle) == ("0001", EXPORTED)
        assert (service.state.answers, service.state.new_samples) == (1, 1)
    count, labels = trainer.received
    assert count == 90
    assert labels is not None
    assert {one for label in labels for one in label} == {"a", "b", "c"}
    assert not (bundle / "device/made").exists()


def test_what_was_kept_before_a_kill_counts_as_new(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(2.0)])
    with serve(bundle) as service:
        lived(service, sample, 10)
        service.save()
        saved = (bundle / "device" / "state.json").read_bytes()
        for number in range(1000, 1005):
            service.infer(sample(0, number))
    assert service.state.new_samples == 15
    state = bundle / "device" / "state.json"
    older = json.loads(saved)
    del older["newest"]
    # Killed five samples after it was written; written by a version without `newest`; removed to start anew.
    for content, new in ((saved, 15), (json.dumps(older).encode(), 10), (None, 0)):
        state.unlink() if content is None else state.write_bytes(content)
        serve(bundle).close()
        assert (read_state(bundle).new_samples, read_state(bundle).newest) == (new, 15)
    state.write_text(json.dumps({**older, "newest": -1}))
    with pytest.raises(BundleError, match="newest must be a whole number from 0"):
        read_state(bundle)


def test_a_round_that_began_before_a_forget_is_not_installed(
    make: Make, pointing: Make, sample: Make, serve: Make, tmp_path: Path
) -> None:
    bundle = make("old", [pointing(2.0, (1, 0, 2))])

    class Forgotten(Copying):
        def save(self, out: Path) -> None:
            super().save(out)
            clear_ring(tmp_path / "ring")
            forget_rounds(bundle)

    begun = bundle / "device" / ".made.999999999.part"
    begun.mkdir(parents=True)
    with serve(bundle, Forgotten(make("new", [pointing(2.0)]))) as service:
        assert not begun.exists(), "a killed process left it"
        lived(service, sample, 90, labels="abc")
        verdict = service.tend(wait=True)
    assert verdict is not None
    assert not verdict.accepted
    assert rounds_in_use(bundle) == (EXPORTED,)
    assert not [path for path in bundle.rglob("*.onnx") if path.parent != bundle]
    assert not list((tmp_path / "ring").iterdir())


def test_a_model_that_is_no_better_is_not_accepted(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(2.0)])
    for name, order in (("worse", (1, 0, 2)), ("equal", (0, 1, 2))):
        with serve(bundle, Copying(make(name, [pointing(2.0, order)]))) as service:
            lived(service, sample, 90, labels="abc", first=90 * len(service.state.rounds))
            verdict = service.tend(wait=True)
            assert verdict is not None
            assert not verdict.accepted
            assert service.infer(sample(0)).label == "a"
    first, second = read_state(bundle).rounds
    assert "the new model is right on fewer samples" in first.reason
    assert "a tie keeps the old model" in second.reason
    assert first.asked == "90 new samples are kept"
    assert rounds_in_use(bundle) == (EXPORTED,)


def test_without_labels_agreement_with_the_last_exit_decides(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    bundle = make("old", [pointing(2.0, (1, 0, 2)), pointing(2.0)], [0.5])
    trainer = Copying(make("new", [pointing(2.0), pointing(2.0)], [0.5]))
    with serve(bundle, trainer) as service:
        lived(service, sample, 90)
        verdict = service.tend(wait=True)
    assert verdict is not None
    assert verdict.accepted
    assert "in agreement with the last exit, as there are no labels" in verdict.reason
    assert trainer.received[1] is None


def test_a_fall_on_the_global_check_records_keeps_the_old(
    make: Make, pointing: Make, sample: Make, tmp_path: Path
) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0, (1, 0, 2))]))

    def checked(candidate: Bundle) -> Flags:
        return np.arange(100) < (90 if candidate.folder == bundle else 70)

    training = round_training(trainer, checked)
    world = World(lambda: ALWAYS, draw=random.Random(0), threads=1)
    with Orchestrator(bundle, Ring(tmp_path / "ring"), training, POLICY, world) as service:
        lived(service, sample, 90, labels="bac")
        verdict = service.tend(wait=True)
    assert verdict is not None
    assert "global accuracy before 90.0 %, after 70.0 %" in verdict.reason
    assert not verdict.accepted


def test_one_class_alone_is_not_trained_on_and_a_round_that_fails_leaves_the_old_model(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    class Failing:
        earlier = 0

        def add(self, *_: object) -> None:
            raise TaskError("no memory for a batch of 32: give a smaller one")

    trainer = Copying(make("new", [pointing(3.0)]))
    with serve(make("one class", [pointing(2.0)]), trainer) as service:
        lived(service, sample, 90, labels="ccc")
        reason = service.tend(wait=True).reason
    assert reason.startswith("every sample has the label 'c', and there are no global check samples")
    assert trainer.received == (0, None)
    with serve(make("old", [pointing(2.0)]), Failing()) as service:
        clear_ring(service.ring.folder)
        lived(service, sample, 90, labels="abc")
        verdict = service.tend(wait=True)
        assert verdict.reason == "the round failed: no memory for a batch of 32: give a smaller one"
        assert service.infer(sample(1)).label == "b"


def test_a_round_waits_for_its_conditions(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(3.0)]))
    with serve(bundle, trainer, readings=replace(ALWAYS, charging=False)) as service:
        lived(service, sample, 90, labels="abc")
        assert service.waiting() == "the device is not charging"
        assert service.tend(wait=True) is None
    with serve(bundle) as service:
        assert service.waiting() == NO_TRAINER
    night = replace(POLICY, conditions=Conditions(window=(60, 120)))
    with serve(bundle, trainer, night) as service:
        assert service.waiting() == "the hour is not within 01:00-02:00"


def test_an_exit_that_goes_astray_raises_its_threshold_and_asks_for_a_round(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    # exit 0 mixes the second and third label up, which it says with confidence; the stream begins with the first alone
    bundle = make("old", [pointing(3.0, (0, 2, 1)), pointing(3.0)], [0.6])
    explores = Policy(watch=Watch(exploration=1.0, enough=10**6, least=30))
    with serve(bundle, policy=explores) as service:
        for number in range(100):
            service.infer(sample(0, number))
        assert service.state.asked is None
        assert service.model.thresholds == (0.6,)
        for number in range(30):
            service.infer(sample(1, number))
        assert service.model.thresholds == (0.65,)
        assert service.state.asked is not None
        assert "exit 0 has risen" in service.state.asked
        assert "its threshold from 0.6 to 0.65" in service.state.asked
        assert service.waiting() is None
        for number in range(30, 60):
            service.infer(sample(1, number))
        assert service.waiting() == NO_TRAINER
        assert service.state.explored == 160
    with serve(bundle, policy=explores) as service:
        assert service.model.thresholds == (0.65,)


def test_new_classes_raise_errors_and_doubt(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    bundle = make("old", [pointing(5.0)])
    with serve(bundle, policy=Policy(watch=Watch(enough=10**6))) as service:
        lived(service, sample, 200, labels="abc")
        assert service.state.asked is None
        for number in range(60):
            service.infer(np.full(3, 0.1 + 1e-4 * number, np.float32), "new")
        assert service.state.asked is not None
        assert service.state.asked.startswith("drift: ")


def test_a_wrong_sample_changes_nothing(make: Make, pointing: Make, sample: Make, serve: Make) -> None:
    with serve(make("old", [pointing(2.0)])) as service:
        with pytest.raises(BundleError, match=r"takes numbers of shape \[3\]"):
            service.infer(np.zeros(5, np.float32))
        assert (service.state.answers, len(service.ring), service.state.problems) == (0, 0, ())


def test_a_full_disk_is_a_problem_and_not_the_end(
    make: Make, pointing: Make, sample: Make, serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with serve(make("old", [pointing(2.0)])) as service:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            assert service.infer(sample(0)).label == "a"
            service.save()
        assert len(service.ring) == 0
        assert ["No space left on device" in problem.line for problem in service.state.problems] == [True, True]
        assert service.infer(sample(1)).label == "b"
        assert len(service.ring) == 1


def test_a_clock_that_is_set_back_by_a_day_stops_neither_rounds_nor_the_state(
    make: Make, pointing: Make, sample: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, trainer, now = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0)])), 2e9
    monkeypatch.setattr("tuner_watch.orchestrator.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("tuner_watch.state.SAVE_SECONDS", 0.0)
    world = World(lambda: ALWAYS, lambda: now, random.Random(0), 1)
    training = round_training(trainer)
    with Orchestrator(bundle, Ring(tmp_path / "ring"), training, POLICY, world) as service:
        lived(service, sample, 30, labels="abc")
        service.tend()
        assert read_state(bundle).answers == 30
        now -= 86_400
        lived(service, sample, 60, labels="abc", first=30)
        assert service.tend(wait=True) is not None
        assert read_state(bundle).answers == 90


def test_an_idle_service_rests_and_writes_nothing(
    make: Make, pointing: Make, sample: Make, serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0)]))
    monkeypatch.setattr("tuner_watch.state.SAVE_SECONDS", 0.0)
    with serve(bundle) as service:
        service.infer(sample(0))
        assert service.rest_seconds == SAVE_SECONDS  # what was counted is not on the disk yet
        service.tend()
        assert service.rest_seconds == RESTING_SECONDS
        written = (bundle / "device" / "state.json").stat().st_mtime_ns
        service.tend()
        assert (bundle / "device" / "state.json").stat().st_mtime_ns == written
    busy = World(lambda: replace(ALWAYS, load=9.0), lambda: 2e9, random.Random(0), 1)
    with Orchestrator(bundle, service.ring, round_training(trainer), POLICY, busy) as service:
        lived(service, sample, 90, labels="abc")
        service.tend()
        assert service.rest_seconds == WAITING_SECONDS  # a round is due, and waits for an idle device


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"load": None, "charging": None}, 1.0),
        ({"load": 0.25}, 0.75),
        ({"load": 1.5}, 0.0),
        ({"load": 0.25, "battery": 0.4}, 0.75),  # it is charging
        ({"load": 0.25, "battery": 0.4, "charging": False}, 0.3),
        ({"load": 0.0, "charging": False}, 1.0),  # a battery that does not say how full it is
    ],
)
def test_a_busy_device_or_one_on_battery_explores_less(change: dict[str, float | None], part: float) -> None:
    assert spare(replace(ALWAYS, **change)) == pytest.approx(part)  # type: ignore[arg-type]  # some fields a case


def test_the_device_is_read_seldom_and_rate_and_step_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, loads = [0.0], [0.0, 0.6, 1.0]
    monkeypatch.setattr("tuner_watch.orchestrator.time.monotonic", lambda: seconds[0])
    exploration = Exploration(Watch(exploration=0.5, step=0.1), lambda: replace(ALWAYS, load=loads.pop(0)))
    for second, share in ((0.0, 1.0), (READ_SECONDS - 1, 1.0), (READ_SECONDS, 0.4), (2 * READ_SECONDS, 0.0)):
        seconds[0] = second
        settings = exploration.settings()
        assert (settings.exploration, settings.step) == pytest.approx((0.5 * share, 0.1 * share))
    assert not loads


@pytest.mark.parametrize(
    ("readings", "least", "most", "threshold"),
    [(ALWAYS, 160, 160, 0.65), (replace(ALWAYS, load=0.5), 60, 100, 0.625), (replace(ALWAYS, load=1.0), 0, 0, 0.6)],
)
def test_a_service_explores_what_the_device_can_do(
    readings: Readings, least: int, most: int, threshold: float, make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    # exit 0 mixes the second and third label up, which it says with confidence; the stream begins with the first alone
    bundle = make("old", [pointing(3.0, (0, 2, 1)), pointing(3.0)], [0.6])
    policy = Policy(watch=Watch(exploration=1.0, enough=10**6, least=30))
    with serve(bundle, policy=policy, readings=readings) as service:
        for number in range(160):
            service.infer(sample(int(number >= 100), number))
        assert least <= service.state.explored <= most
        assert service.model.thresholds == (threshold,)
