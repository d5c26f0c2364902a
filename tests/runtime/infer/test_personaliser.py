"""Early exits: the right one is taken, alone and in a batch; a bundle that is wrong is reported in one line."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.bundle.format import file_hash
from tuner.errors import BundleError
from tuner.ort.session import Session
from tuner.runtime import Bundle, Personaliser
from tuner.task.inputs.images import Images
from tuner.task.spec import InputSpec

Make = Callable[..., Any]


def test_a_bundle_without_exits_is_a_chain_of_one(make: Make, pointing: Make, sample: Make) -> None:
    model = Personaliser(make("one", [pointing(2.0)]), threads=1)
    prediction = model.predict(sample(1))
    assert (prediction.label, prediction.exit, model.exits) == ("b", 0, 1)
    assert prediction.probability == pytest.approx(math.exp(2) / (math.exp(2) + 2), rel=1e-5)
    assert prediction.seconds > 0


def test_a_sample_exits_at_the_first_exit_that_is_sure(make: Make, pointing: Make, sample: Make) -> None:
    bundle = make("three", [pointing(1.0), pointing(2.0), pointing(3.0)], [0.9, 0.9])
    model = Personaliser(bundle, threads=1)
    left = [model.predict(sample(0, strength=strength)).exit for strength in (5.0, 2.0, 0.5)]
    assert left == [0, 1, 2]
    never = Personaliser(make("sure", [pointing(1.0), pointing(1.0)], [1.0]), threads=1)
    assert never.predict(sample(2, strength=1000.0)).exit == 1


def test_a_prediction_has_the_probability_of_each_label(make: Make, pointing: Make, sample: Make) -> None:
    model = Personaliser(make("one", [pointing(2.0)]), threads=1)
    alone, (first, _) = model.predict(sample(1)), model.predict(iter([sample(1), sample(0)]))
    for prediction in (alone, first, model.predict_batch(sample(1)[None])[0]):
        label, probability = next(iter(prediction.probabilities.items()))
        assert label == prediction.label
        assert probability == pytest.approx(prediction.probability)
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert "outputs" not in prediction.to_dict()
        assert "0x" not in repr(prediction)


def test_a_photo_is_taken_as_a_file_as_an_image_or_as_a_camera_gives_it(tmp_path: Path) -> None:
    spec = InputSpec("images", size=32, resize=40)
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "1.png")
    expected = Images().read(tmp_path / "1.png", spec)
    with Image.open(tmp_path / "1.png") as image:
        for given in (image, pixels):
            assert np.array_equal(Images().decoded(given, spec), expected)
    assert Images().decoded(expected, spec) is expected
    assert Images().decoded(pixels[..., 0], spec).shape == (3, 32, 32)


def test_a_batch_gives_what_its_samples_give_alone(make: Make, pointing: Make) -> None:
    bundle = make("three", [pointing(1.0), pointing(2.0), pointing(3.0, (1, 0, 2))], [0.8, 0.8])
    model = Personaliser(bundle, threads=1)
    samples = np.random.default_rng(0).normal(0, 2, (64, 3)).astype(np.float32)
    together = model.predict_batch(samples)
    alone = [model.predict(row) for row in samples]
    assert [(prediction.label, prediction.exit) for prediction in together] == [
        (prediction.label, prediction.exit) for prediction in alone
    ]
    assert [prediction.probability for prediction in together] == pytest.approx(
        [prediction.probability for prediction in alone], rel=1e-5
    )
    assert {prediction.exit for prediction in together} == {0, 1, 2}
    assert model.predict_batch(samples[:0]) == []


def test_every_exit_gives_its_probabilities(make: Make, pointing: Make, sample: Make) -> None:
    model = Personaliser(make("two", [pointing(1.0), pointing(2.0, (1, 0, 2))], [0.0]), threads=1)
    probabilities = model.every_exit(sample(0)[None])
    assert probabilities.shape == (2, 1, 3)
    assert probabilities[:, 0].argmax(axis=1).tolist() == [0, 1]


def test_a_sample_that_is_explored_goes_through_each_segment_once(
    make: Make, pointing: Make, sample: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Personaliser(make("three", [pointing(scale) for scale in (1.0, 2.0, 3.0)], [0.9, 0.9]), threads=1)
    runs: list[int] = []
    run = Session.run

    def counted(self: Session, batch: Any, *names: str) -> Any:
        runs.append(id(self))
        return run(self, batch, *names)

    monkeypatch.setattr(Session, "run", counted)
    alone, nothing = model.explored(sample(0, strength=2.0), explore=False)
    assert (alone.exit, nothing, len(runs)) == (1, None, 2)
    runs.clear()
    prediction, every = model.explored(sample(0, strength=2.0), explore=True)
    assert len(runs) == len(set(runs)) == 3
    assert replace(prediction, seconds=0.0) == replace(alone, seconds=0.0)
    assert every is not None
    np.testing.assert_array_equal(every, model.every_exit(sample(0, strength=2.0)[None])[:, 0])
    single = Personaliser(make("one", [pointing(2.0)]), threads=1)
    assert single.explored(sample(1), explore=True)[1] is None


def test_the_temperature_divides_the_logits(make: Make, pointing: Make, sample: Make) -> None:
    bundle = make("warm", [pointing(4.0), pointing(4.0)], [0.5])
    expected = pytest.approx(math.e / (math.e + 2), rel=1e-5)
    warm = Personaliser(edited(bundle, "exits", temperatures=[4.0, 4.0]), threads=1)
    assert warm.predict(sample(0)).probability == expected
    own = Personaliser(edited(bundle, "exits", temperatures=[4.0, 1.0]), threads=1)  # of each exit
    every = own.every_exit(sample(0)[None])[:, 0, 0]
    assert [every[0], math.log(every[1] / (1 - every[1]) * 2)] == [expected, pytest.approx(4.0, rel=1e-4)]


@pytest.mark.parametrize("given", [np.zeros(4, np.float32), np.zeros((3, 3), np.float32), np.array(["a", "b", "c"])])
def test_a_sample_of_another_shape_or_type_is_reported(given: Any, make: Make, pointing: Make) -> None:
    model = Personaliser(make("one", [pointing(1.0)]), threads=1)
    with pytest.raises(BundleError, match=r"hand-made takes numbers of shape \[3\], got "):
        model.predict(given)


def edited(bundle: Path, section: str, **changes: Any) -> Path:
    """Return a bundle after changes to a section of its description."""
    content = json.loads((bundle / "bundle.json").read_text())
    content[section] |= changes
    (bundle / "bundle.json").write_text(json.dumps(content))
    return bundle


@pytest.mark.parametrize(
    ("exits", "says"),
    [
        ({"thresholds": []}, "2 segments, 2 shares, 0 thresholds"),
        ({"shares": [1.0]}, "2 segments, 1 shares, 1 thresholds"),
        ({"temperatures": [0, 1]}, "temperature must be above 0"),
        ({"temperatures": [1.0]}, "one for each of 2 exits, got 1"),
        ({"segments": ["segments/0.onnx", "model.onnx"]}, "no hash of model.onnx"),
    ],
)
def test_exits_that_do_not_fit_are_reported(exits: dict[str, Any], says: str, make: Make, pointing: Make) -> None:
    bundle = edited(make("two", [pointing(1.0), pointing(1.0)], [0.5]), "exits", **exits)
    with pytest.raises(BundleError, match=says):
        Bundle.open(bundle)


def test_segments_that_do_not_fit_are_reported(make: Make, pointing: Make, sample: Make) -> None:
    bundle = make("two", [pointing(1.0), pointing(1.0)], [0.5])
    (bundle / "segments/0.onnx").write_bytes((bundle / "segments/1.onnx").read_bytes())
    with pytest.raises(BundleError, match="is not what was exported"):
        Personaliser(bundle)
    last = file_hash(bundle / "segments/1.onnx")
    with pytest.raises(BundleError, match=r"has outputs \['logits'\], but no features: export again"):
        Personaliser(edited(bundle, "files", **{"segments/0.onnx": last}))
    four = Personaliser(make("four", [pointing(1.0)], labels=("a", "b", "c", "d")), threads=1)
    with pytest.raises(BundleError, match=r"segment 0 gives logits of shape \[1, 3\] for 1 samples and 4 labels"):
        four.predict(sample(0))
