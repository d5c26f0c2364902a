"""Weights that are damaged, of other types, or not numbers: one line each."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from torch import nn

from tuner.backends.torch.export.whole import fill, trained_weights
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner_exits.torch.weights import ExitWeights

WHOLE = save({"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})


def file_of(header: object, values: bytes = bytes(32)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def tensor(kind: str = "F32", shape: tuple[int, ...] = (2,), begin: int = 0, end: int = 8) -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


DAMAGED = {
    "empty": b"",
    "seven bytes": bytes(7),
    "half": WHOLE[: len(WHOLE) // 2],
    "a byte less": WHOLE[:-1],
    "a byte more": WHOLE + b"\0",
    "a header of 2^63": struct.pack("<Q", 2**63) + WHOLE[8:],
    "no JSON": file_of(b"{"),
    "no UTF-8": file_of(b'{"\xff": 1}'),
    "nested": file_of(b"[" * 100_000),
    "negative": file_of({"bias": tensor(begin=-8)}),
    "an overlap": file_of({"bias": tensor(), "weight": tensor(begin=4, end=12)}),
    "a hole": file_of({"bias": tensor(), "weight": tensor(begin=16, end=24)}),
    "8 bits": file_of({"bias": tensor("F8_E4M3", (8,))}, bytes(8)),
    "no numbers": save({"bias": np.full(2, np.nan, np.float32)}),
    "a terminal's": save({"\x1b]0;owned\x07": np.full(2, np.nan, np.float32)}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_weights_are_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(DAMAGED[name])
    for read in (read_tensors, trained_weights, ExitWeights.read):
        with pytest.raises(BundleError) as raised:
            read(path)
        assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"weight": np.ones((2, 3), np.float32)},
        {"weight": np.ones((3, 3), np.float32), "bias": np.zeros(2, np.float32)},
        {"weight": np.ones((2, 3), np.int32), "bias": np.zeros(2, np.float32)},
        {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32), "more": np.zeros(1, np.float32)},
    ],
)
def test_weights_of_another_model_are_one_line(changed: dict[str, np.ndarray], tmp_path: Path) -> None:
    path, module = tmp_path / "weights.safetensors", nn.Linear(3, 2)
    path.write_bytes(WHOLE)
    fill(module, trained_weights(path), path)
    assert torch.equal(module.weight.detach(), torch.ones(2, 3))
    path.write_bytes(save(changed))
    with pytest.raises(BundleError, match="does not hold the weights of this trial"):
        fill(module, trained_weights(path), path)
