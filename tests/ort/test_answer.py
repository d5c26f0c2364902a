"""A model's answer as nodes of the model: the same as numpy's, in every operator set that has them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tuner.errors import BundleError
from tuner.ort.answer import ANSWER, with_answer
from tuner.ort.session import LOGITS, Session
from tuner.runtime.infer.chain import Chain
from tuner.targets import SINGLE_LABEL, MultiLabel, Targets

LABELS = 5


def model(path: Path, operator_set: int = 18) -> Path:
    """Write a model whose logits are its input."""
    shape = ["n", LABELS]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("input", LOGITS)]
    graph = helper.make_graph([helper.make_node("Identity", ["input"], [LOGITS])], "same", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", operator_set)], ir_version=8)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("operator_set", [11, 13, 18, 21])
@pytest.mark.parametrize("kind", [SINGLE_LABEL, MultiLabel()])
def test_the_answer_is_numpys(operator_set: int, kind: Targets, tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(0, 30, (64, LABELS)).astype(np.float32)
    logits[0] = 0  # all alike: the first label
    logits[1] = 1e4  # sure of each of several labels
    path = model(tmp_path / "model.onnx", operator_set)
    session = Session(path, 1, with_answer(path, LABELS, 2.5, kind))
    found, label, probability, confidence = session.run(logits, *ANSWER)
    expected = kind.probabilities(logits / np.float32(2.5))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(confidence[:, 0], kind.confidences(logits, 2.5), rtol=1e-5)
    assert (confidence <= 1).all()
    assert (probability[:, 0] == found.max(axis=1)).all()
    assert (label[:, 0] == found.argmax(axis=1)).all()
    np.testing.assert_array_equal(session.logits(logits), logits)


def test_the_file_that_it_is_made_from_stays_a_model_and_so_is_what_is_made(tmp_path: Path) -> None:
    path = model(tmp_path / "model.onnx")
    onnx.checker.check_model(onnx.load(path))
    made = onnx.load_from_string(with_answer(path, LABELS, 1.0, MultiLabel()))
    assert [output.name for output in made.graph.output] == [LOGITS, *ANSWER]


def test_a_missing_file_and_logits_that_are_not_numbers_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no\.onnx cannot be read"):
        with_answer(tmp_path / "no.onnx", LABELS, 1.0, SINGLE_LABEL)
    chain = Chain([model(tmp_path / "model.onnx")], LABELS, threads=1)
    with pytest.raises(BundleError, match="logits that are not numbers"):
        chain.leave_alone(np.full((1, LABELS), np.nan, np.float32), ())
