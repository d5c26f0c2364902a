"""A bundle of a regression that learns on the device: from targets in their own unit, judged by how near it comes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.bundles import trainable_bundle
from tests.slants import write_task
from tuner import load_task
from tuner.arrays import Floats
from tuner.errors import BundleError
from tuner.runtime import Personaliser, Trainer
from tuner_watch.conditions import ANY_TIME
from tuner_watch.monitor import Watch
from tuner_watch.orchestrator import Policy
from tuner_watch.watch import watch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slants")


@pytest.fixture(scope="module")
def bundle(folder: Path, own_cache: Path) -> Path:
    return trainable_bundle(load_task(str(write_task(folder))), folder)


@pytest.fixture(scope="module")
def digits(folder: Path, bundle: Path) -> tuple[list[Floats], list[float]]:
    """The user's digits and their slants in degrees."""
    with np.load(folder / "local.npz") as data:
        return list(data["x_val"]), data["y_val"].tolist()


def errors(folder: Path, samples: list[Floats], slants: list[float]) -> float:
    predicted = [prediction.values or () for prediction in Personaliser(folder, 1).predict_batch(np.stack(samples))]
    return float(np.mean([abs(value - slant) for ((_, value),), slant in zip(predicted, slants, strict=True)]))


def test_it_learns_from_targets_in_their_own_unit(
    bundle: Path, digits: tuple[list[Floats], list[float]], tmp_path: Path
) -> None:
    samples, slants = digits
    trainer = Trainer(bundle, threads=1)
    trainer.add(samples[:100], slants[:100])
    before = trainer.accuracy(samples[100:], slants[100:])
    trainer.train()
    assert trainer.accuracy(samples[100:], slants[100:]) > before
    texts = [float(answer.label) for answer in trainer.answers(samples[100:])]
    saved = trainer.save(tmp_path / "next")
    assert errors(saved, samples[100:], slants[100:]) == pytest.approx(
        np.abs(np.subtract(texts, slants[100:])).mean(), rel=1e-3
    )
    assert errors(saved, samples[100:], slants[100:]) < errors(bundle, samples[100:], slants[100:])


def test_a_round_in_service_is_judged_by_how_near_the_answers_come(
    bundle: Path, digits: tuple[list[Floats], list[float]], tmp_path: Path
) -> None:
    for number, (sample, slant) in enumerate(list(zip(*digits, strict=True))[:80]):
        file = tmp_path / "coming" / f"{slant:.4f}" / f"{number}.npy"  # the folder's name is the target
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, sample)
    (tmp_path / "coming" / "steep").mkdir()
    np.save(tmp_path / "coming" / "steep" / "0.npy", digits[0][0])
    events: list[dict[str, Any]] = []
    policy = Policy(watch=Watch(enough=80), conditions=ANY_TIME)
    watch(bundle, str(tmp_path / "coming"), events.append, once=True, policy=policy)
    (ended,) = (event for event in events if "round" in event)
    assert "of 80 samples within 0.5 standard deviations of their targets" in ended["reason"]
    assert "the share of global samples within 0.5 standard deviations" in ended["reason"]
    assert "accuracy" not in ended["reason"]
    answers = [event for event in events if "values" in event]
    assert len(answers) == 80
    assert not any({"label", "probability"} & set(answer) for answer in answers)
    (refused,) = (event["refused"] for event in events if "refused" in event)
    assert "predicts 1 numbers (slant), but a sample has the target 'steep'" in refused


@pytest.mark.parametrize("target", ["steep", "1|2", float("nan"), [1.0, 2.0], []])
def test_what_is_no_target_is_refused(target: Any, bundle: Path) -> None:
    with pytest.raises(BundleError, match=r"predicts 1 numbers \(slant\), but a sample has the target") as error:
        Personaliser(bundle, 1).bundle.label_rows([target])
    assert "\n" not in str(error.value)
