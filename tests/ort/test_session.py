"""Sessions of ONNX Runtime: their memory, their options, and a model's answer as nodes of it, as numpy has it."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from tuner.errors import BundleError
from tuner.machine.process_memory import return_freed
from tuner.ort import session
from tuner.ort.answer import ANSWER, with_answer
from tuner.ort.session import LOGITS, Session
from tuner.runtime.infer.chain import Chain
from tuner.targets import SINGLE_LABEL, MultiLabel, Targets

WIDE = 4_000_000  # numbers within the model, a sample: 16 MB


def wide(path: Path) -> Path:
    """Write a model that makes much of little in between, and little of that."""
    names = {"input": ["n", 1], LOGITS: ["n", 1]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in names.items()]
    nodes = [
        helper.make_node("Expand", ["input", "size"], ["much"]),
        helper.make_node("Sigmoid", ["much"], ["as much"]),
        helper.make_node("ReduceMax", ["as much"], [LOGITS], axes=[1]),
    ]
    size = helper.make_tensor("size", TensorProto.INT64, [2], [1, WIDE])
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], [size])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the kernel does not report memory there")
def test_a_batch_gives_its_memory_back_and_a_single_sample_keeps_it(tmp_path: Path) -> None:
    def kept_by(samples: int) -> int:
        session, process = Session(wide(tmp_path / "model.onnx"), 1), psutil.Process()
        return_freed()  # else what earlier tests have freed is used again, which the kernel does not count as more
        before = process.memory_info().rss
        session.logits(np.zeros((samples, 1), np.float32))
        return int(process.memory_info().rss - before)

    each = 4 * WIDE
    assert kept_by(1) > each / 2
    assert kept_by(8) < 3 * each  # of the 16 that the batch took


@pytest.mark.parametrize(
    ("flags", "careful"), [("flags\t: fpu avx2\n", True), ("flags\t: avx512_vnni fma\n", False), (None, True)]
)
def test_products_of_8_bits_are_added_in_32_bits_where_the_processor_would_take_16(
    flags: str | None, careful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    if flags is not None:
        info.write_text(f"processor : 0\n{flags}")
    monkeypatch.setattr(session, "CPU_INFO", info)
    session._adds_in_16_bits.cache_clear()
    try:
        options = session.open_session(wide(tmp_path / "model.onnx"), 1).get_session_options()
    finally:
        session._adds_in_16_bits.cache_clear()
    with nullcontext() if careful else pytest.raises(RuntimeError, match="does not have"):
        assert options.get_session_config_entry("session.x64quantprecision") == "1"


LABELS = 5


def model(path: Path, operator_set: int = 18, size: int | str = LABELS) -> Path:
    """Write a model whose logits are its input."""
    shape = ["n", size]
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
    onnx.checker.check_model(onnx.load(path))
    made = with_answer(path, LABELS, 2.5, kind)
    assert [output.name for output in onnx.load_from_string(made).graph.output] == [LOGITS, *ANSWER]
    session = Session(path, 1, made)
    found, confidence = session.run(logits, *ANSWER)
    expected = kind.probabilities(logits / np.float32(2.5))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(confidence[:, 0], kind.confidences(logits, 2.5), rtol=1e-5)
    assert (confidence <= 1).all()
    np.testing.assert_array_equal(session.logits(logits), logits)


@pytest.mark.parametrize("size", [LABELS, "m"])
def test_the_content_is_not_held_next_to_the_session_that_was_opened_with_it(size: int | str, tmp_path: Path) -> None:
    path = model(tmp_path / "model.onnx", size=size)
    session = Session(path, 1, path.read_bytes())
    if size == "m":  # its first run is bounded by what the content says
        session.logits(np.zeros((2, LABELS), np.float32))
    assert not [name for name, value in vars(session).items() if isinstance(value, bytes)]


def test_a_missing_file_and_logits_that_are_not_numbers_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no\.onnx cannot be read"):
        with_answer(tmp_path / "no.onnx", LABELS, 1.0, SINGLE_LABEL)
    chain = Chain([model(tmp_path / "model.onnx")], LABELS, threads=1)
    with pytest.raises(BundleError, match="logits that are not numbers"):
        chain.leave_alone(np.full((1, LABELS), np.nan, np.float32), ())


def test_a_model_that_fails_prints_nothing_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime's log has the names of nodes as the file has them."""
    rows = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 2])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    node = helper.make_node("GatherElements", ["input", "at"], ["logits"], name="\x1b]0;owned\x07", axis=1)
    at = numpy_helper.from_array(np.array([[9]]), "at")
    graph = helper.make_graph([node], "g", [rows], [out], [at])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(BundleError):
        Session(made.SerializeToString(), 1).logits(np.zeros((1, 2), np.float32))
    assert capfd.readouterr().err == ""
