"""A device that computes something else than the conformance set holds is found out; one that does not is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file

from tests.bundle.handmade import make, pointing
from tuner.bundle.format import CONFORMANCE, FILE, Bundle, file_hash
from tuner.cli.app import call
from tuner.errors import BundleError
from tuner_conformance import files
from tuner_conformance.gate_cases import gate_cases
from tuner_conformance.inputs import RuledNoise

__all__ = ["make", "pointing"]
OLD = Path(__file__).parents[2] / "fixtures"
TRAINED = {"replay", "codes", "rates", "losses"}


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Return a bundle that trains its tail, with its set."""
    folder = shutil.copytree(OLD / "digits" / "bundle", tmp_path / "bundle")
    files.write_set(Bundle.open(folder), folder / CONFORMANCE)
    return folder


def broken(folder: Path) -> set[str]:
    return {check.name for check in files.compared(Bundle.open(folder), folder / CONFORMANCE) if not check.holds}


def test_the_same_device_computes_the_same(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["bundle", "check", str(digits), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["holds"]
    assert {check["name"] for check in report["checks"]} >= {"logits", "left_at", "probabilities", "gate", *TRAINED}
    losses = load_file(digits / CONFORMANCE / files.TENSORS)["expected.losses"]
    assert len(losses) == 20
    assert losses[-5:].mean() < losses[:5].mean()


def test_exits_have_logits_each_and_train_from_the_first(tmp_path: Path) -> None:
    folder = shutil.copytree(OLD / "exits" / "bundle", tmp_path / "bundle")
    files.write_set(Bundle.open(folder), folder / CONFORMANCE)
    expected = load_file(folder / CONFORMANCE / files.TENSORS)
    assert expected["expected.logits"].shape[0] == len(Bundle.open(folder).models)
    assert len(expected["expected.losses"]) == 20
    assert broken(folder) == set()
    thresholds = expected["expected.calibrated"]
    save_file({**expected, "expected.calibrated": thresholds + 0.05}, folder / CONFORMANCE / files.TENSORS)
    assert broken(folder) == {"calibrated"}
    del expected["expected.targets"], expected["expected.calibrated"]
    save_file(expected, folder / CONFORMANCE / files.TENSORS)
    assert broken(folder) == {"targets", "calibrated"}


@pytest.mark.parametrize("name", ["logits", "losses", "codes", "rates", "replay"])
def test_another_result_breaks_the_check(digits: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = digits / CONFORMANCE / files.TENSORS
    tensors = load_file(path)
    changed = tensors[f"expected.{name}"].copy()
    changed.reshape(-1)[-1] += 1
    save_file({**tensors, f"expected.{name}": changed}, path)
    assert broken(digits) == {name}
    assert call(["bundle", "check", str(digits)]) == 1
    assert name in capsys.readouterr().err


def test_another_decision_of_the_gate_breaks_the_check(digits: Path) -> None:
    path = digits / CONFORMANCE / files.FILE
    content = json.loads(path.read_text())
    content["gate"][3]["accepted"] = not content["gate"][3]["accepted"]
    path.write_text(json.dumps(content))
    assert broken(digits) == {"gate"}


def test_the_cases_of_the_gate_have_both_verdicts_and_bounds() -> None:
    cases = gate_cases()
    assert {case["accepted"] for case in cases} == {True, False}
    assert sum(case["bounds"] is not None for case in cases) >= 10
    assert len(cases) >= 30


def test_pictures_are_compared_as_the_model_sees_them(make: Callable[..., Path], pointing: Any) -> None:
    spec = {"kind": "images", "size": 8, "resize": 9, "mean": [0.5], "std": [0.5]}
    folder = make("pictures", [np.ones((192, 3))], input=spec, input_shape=[3, 8, 8])
    model = onnx.load(folder / "model.onnx")
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 8, 8]))
    model.graph.node[0].input[0] = "flat"
    model.graph.node.insert(0, helper.make_node("Flatten", ["input"], ["flat"]))
    onnx.save(model, folder / "model.onnx")
    content = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps({**content, "files": {"model.onnx": file_hash(folder / "model.onnx")}}))
    files.write_set(Bundle.open(folder), folder / CONFORMANCE)
    images = {path.name for path in (folder / CONFORMANCE / files.IMAGES).iterdir()}
    assert images == {"same.png", "wide.png", "high.png", "large.jpg"}
    assert broken(folder) == set()
    tensors = load_file(folder / CONFORMANCE / files.TENSORS)
    tensors["expected.image.wide.png"][0, 0, 0] ^= 4
    save_file(tensors, folder / CONFORMANCE / files.TENSORS)
    assert broken(folder) == {"image.wide.png"}


def test_the_noise_is_the_one_that_is_written_down() -> None:
    noise, first, second = RuledNoise(2), np.empty(5, np.float32), np.empty((2, 2), np.float32)
    noise.random(dtype=np.float32, out=first)
    noise.random(dtype=np.float32, out=second)
    noise.random(dtype=np.float32, out=first)
    wanted = [(((2654435761 * number + 40503 * 2) % 2**32) >> 8) / 2**24 for number in range(5)]
    assert first.tolist() == wanted
    assert second[0, 1] == (((2654435761 + 40503 + 97) % 2**32) >> 8) / 2**24


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 9}, "set format 9"),
        ({"bundle": "0"}, "another bundle"),
        ({"batches": [[10**6]]}, "does not have"),
        ({"gate": [{}]}, "damaged"),
        ({"images": ["../../secret"]}, "leads out"),
    ],
)
def test_a_set_that_does_not_fit_is_refused(digits: Path, change: dict[str, Any], reason: str) -> None:
    path = digits / CONFORMANCE / files.FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BundleError, match=reason):
        files.compared(Bundle.open(digits), digits / CONFORMANCE)
