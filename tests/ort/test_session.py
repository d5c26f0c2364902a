"""Memory of sessions: a batch's is given back."""

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tuner.ort import session
from tuner.ort.session import LOGITS, Session

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
        session = Session(wide(tmp_path / "model.onnx"), 1)
        before = resident()
        session.logits(np.zeros((samples, 1), np.float32))
        return resident() - before

    each = 4 * WIDE
    assert kept_by(1) > each / 2
    assert kept_by(8) < 3 * each  # of the 16 that the batch took


def resident() -> int:
    """Return the process's bytes in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
