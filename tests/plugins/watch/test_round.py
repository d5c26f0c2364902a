"""A round: every sample judges once, by a model that was not trained on it, and no sample judges a model it taught."""

from dataclasses import replace

import numpy as np
import pytest

from tests.plugins.watch.lived import Copying, Make, lived, round_training
from tuner.arrays import Flags
from tuner.bundle.rounds import EXPORTED, rounds_in_use
from tuner.runtime import Bundle, Personaliser
from tuner.runtime.train.gate import Rules
from tuner_watch.ring import RingSample
from tuner_watch.round import folds_of, run_round
from tuner_watch.serving import roll_back
from tuner_watch.state import read_state

SWAPPED = (1, 0, 2)  # the samples' labels, as this order of answers gives them


def ring_samples(sample: Make, count: int, labels: str = "bac") -> list[RingSample]:
    """Return samples of three classes in turn, their identities in no order."""
    return [
        RingSample(f"{number * 7919 % 10007:032x}", labels[number % 3], sample(number % 3, number))
        for number in range(count)
    ]


def test_folds_hold_every_sample_once_and_every_label_alike(sample: Make) -> None:
    samples = ring_samples(sample, 47)
    folds = folds_of(samples, range(47), 5)
    assert sorted(row for fold in folds for row in fold) == list(range(47))
    for label in "abc":
        counts = [sum(samples[row].label == label for row in fold) for fold in folds]
        assert max(counts) - min(counts) <= 1
    moved = folds_of(samples[::-1], range(47), 5)
    assert [{46 - row for row in fold} for fold in moved] == [set(fold) for fold in folds]
    assert sorted(folds_of(samples, [3, 4], 5)) == [[3], [4]]


def test_windows_of_a_recording_are_in_one_fold_unless_their_label_has_no_other(sample: Make) -> None:
    whose = [min(number // 4, 6) for number in range(32)]
    samples = [
        replace(one, label="b" if number >= 24 else "a", recording=f"r{whose[number]}")
        for number, one in enumerate(ring_samples(sample, 32))
    ]
    folds = folds_of(samples, range(32), 3)
    assert sorted(row for fold in folds for row in fold) == list(range(32))
    for recording in range(6):
        assert sum(any(whose[row] == recording for row in fold) for fold in folds) == 1
    assert sorted(sum(row >= 24 for row in fold) for fold in folds) == [2, 3, 3]
    assert len(folds_of(samples, [0, 1, 2], 3)) == 1


def test_every_sample_judges_once_and_the_model_learns_from_all(make: Make, pointing: Make, sample: Make) -> None:
    trainer = Copying(make("new", [pointing(2.0, SWAPPED)]))
    old = Personaliser(make("old", [pointing(2.0)]), 1)
    result = run_round(old, ring_samples(sample, 40), round_training(trainer), Rules())
    assert result.verdict.accepted, result.verdict
    assert sorted(row for fold in trainer.folds for row in fold) == list(range(40))
    assert trainer.received[0] == len(result.used) == 40
    evidence = result.verdict.evidence
    assert evidence is not None
    assert (evidence.samples, evidence.models, evidence.before, evidence.after) == (40, 5, 13, 40)
    assert "before 13, after 40 of 40 samples right, judged by 5 models trained without them" in result.verdict.reason


def test_samples_that_the_model_in_use_learned_from_do_not_judge_it(make: Make, pointing: Make, sample: Make) -> None:
    trainer, samples = Copying(make("new", [pointing(2.0, SWAPPED)])), ring_samples(sample, 40)
    old, training = Personaliser(make("old", [pointing(2.0)]), 1), round_training(trainer)
    learned = frozenset(one.identity for one in samples[:25])
    result = run_round(old, samples, training, Rules(), learned)
    assert sorted(row for fold in trainer.folds for row in fold) == list(range(25, 40))
    assert trainer.received[0] == 40
    assert result.verdict.evidence is not None
    assert result.verdict.evidence.samples == 15
    few = run_round(old, samples, training, Rules(), learned.union(one.identity for one in samples[:31]))
    assert few.verdict.reason.startswith("9 samples that the model in use was not trained on are too few")


def test_where_time_is_short_fewer_folds_judge_but_enough_samples(make: Make, pointing: Make, sample: Make) -> None:
    trainer = Copying(make("new", [pointing(2.0, SWAPPED)]))
    old, samples = Personaliser(make("old", [pointing(2.0)]), 1), ring_samples(sample, 40)
    result = run_round(old, samples, round_training(trainer), Rules(least=10, seconds=0))
    assert [len(fold) for fold in trainer.folds] == [8, 8]
    assert "of 16 samples right, judged by 2 models" in result.verdict.reason
    assert result.verdict.accepted


def test_no_model_is_made_where_the_samples_refuse_it(make: Make, pointing: Make, sample: Make) -> None:
    trainer = Copying(make("new", [pointing(2.0, SWAPPED)]))
    old = Personaliser(make("old", [pointing(2.0)]), 1)
    result = run_round(old, ring_samples(sample, 40, "abc"), round_training(trainer), Rules())
    assert result.made is None
    assert "the new model is right on fewer samples" in result.verdict.reason


def test_rounds_in_service_remember_what_they_learned_from(
    make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0, SWAPPED)]))
    with serve(bundle, trainer) as service:
        lived(service, sample, 90, labels="bac")
        assert service.tend(wait=True).accepted
    with serve(bundle, replace(trainer, made=make("third", [pointing(2.0, (1, 2, 0))]))) as service:
        lived(service, sample, 60, labels="bca", first=90)
        verdict = service.tend(wait=True)
        assert verdict.accepted, verdict
        assert verdict.evidence.samples == 60
    first, second = read_state(bundle).rounds
    assert (first.samples, second.samples) == (90, 150)
    assert second.evidence == verdict.evidence
    assert first.evidence is not None
    assert first.evidence.samples == 90
    roll_back(bundle)
    with serve(bundle, trainer) as service:  # the first round's model is in use again: the later samples judge it
        assert len(service.ring.learned(service.model.bundle.identity)) == 90
    roll_back(bundle)
    with serve(bundle) as service:
        assert service.ring.learned(service.model.bundle.identity) == frozenset()


def test_a_model_is_not_put_in_place_where_its_samples_cannot_be_noted(
    make: Make, pointing: Make, sample: Make, serve: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    bundle, trainer = make("old", [pointing(2.0)]), Copying(make("new", [pointing(2.0, SWAPPED)]))
    with serve(bundle, trainer) as service:
        lived(service, sample, 90, labels="bac")
        with monkeypatch.context() as patch:
            patch.setattr("tuner_watch.ring.Ring.note_learned", full)
            verdict = service.tend(wait=True)
    assert verdict.reason.startswith("the new bundle cannot be put in place")
    assert rounds_in_use(bundle) == (EXPORTED,)


def test_small_losses_do_not_add_up_from_round_to_round(make: Make, pointing: Make, sample: Make) -> None:
    """The loss since the export counts, although the loss since the model in use is small."""
    folders = {name: make(name, [pointing(2.0)]) for name in ("exported", "old")}
    trainer = Copying(make("new", [pointing(2.0, SWAPPED)]))
    right = {"exported": 450, "old": 402, "made": 400}

    def checked(bundle: Bundle) -> Flags:
        return np.arange(500) < right[bundle.folder.name]

    training = round_training(trainer, checked, exported=folders["exported"])
    result = run_round(Personaliser(folders["old"], 1), ring_samples(sample, 40), training, Rules())
    assert "has certainly fallen by more than 1 points since the export" in result.verdict.reason


def test_the_users_earlier_samples_are_asked_and_let_a_round_of_one_class_run(
    make: Make, pointing: Make, sample: Make
) -> None:
    old, made = Personaliser(make("old", [pointing(2.0)]), 1), make("new", [pointing(2.0, SWAPPED)])
    samples = [replace(one, label="b") for one in ring_samples(sample, 60)[::3]]
    alone = run_round(old, samples, round_training(Copying(made)), Rules())
    assert "there are no global check samples, and no earlier ones of the user, to notice" in alone.verdict.reason
    count = np.arange(200)
    for lost, accepted in ((0, True), (20, False)):
        trainer = Copying(made, right=(count < 190, count < 190 - lost, count < 0))
        verdict = run_round(old, samples, round_training(trainer), Rules()).verdict
        assert verdict.accepted is accepted, verdict
        assert ("accuracy on earlier samples certainly falls by more than 1 points" in verdict.reason) is not accepted
        assert verdict.evidence is not None
        assert (verdict.evidence.earlier_before, verdict.evidence.earlier_after) == (0.95, 0.95 - lost / 200)
    hidden = Copying(made, right=(count >= 40, (count < 20) | (count >= 60), count >= 40))  # as many right as before
    verdict = run_round(old, samples, round_training(hidden), Rules()).verdict
    assert "accuracy on earlier samples of labels that did not come certainly falls" in verdict.reason
