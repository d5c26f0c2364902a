"""Exported files say nothing of the device that they were made on."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import tuner
from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
from tuner.backends.torch.features.engines import exported_prefix
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.plan.heads import HeadsPlan
from tuner.task.spec import Pretrain

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


def places() -> set[bytes]:
    """Return what would give this installation away, as it stands in files."""
    folders = {Path(tuner.__file__).parent, Path(torch.__file__).parent, Path(sys.prefix), Path(__file__).parents[3]}
    return {b"site-packages", b"stack_trace", *(str(folder).encode() for folder in folders)}


def found_in(folder: Path) -> dict[str, set[bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".onnx" for path in files)
    return {path.name: held for path in files if (held := {place for place in places() if place in path.read_bytes()})}


@pytest.mark.parametrize("exits", [False, True])
def test_no_file_of_a_bundle_holds_the_path_of_the_installation(exits: bool, tmp_path: Path) -> None:
    task = known_digits()
    task = replace(task, model=replace(task.model, pretrain=Pretrain(epochs=1, learning_rate=3e-3)))
    heads = HeadsPlan("exits-only", supervised=1.0, against="best")
    out = trainable_exits(task, tmp_path, heads) if exits else trainable_bundle(task, tmp_path, epochs=1)
    assert found_in(out) == {}
    assert len(list(out.rglob("*.onnx"))) >= 3


def test_nor_does_the_prefix_on_this_device(tmp_path: Path) -> None:
    task = known_digits()
    model = load(replace(task, model=replace(task.model, pretrain=Pretrain(epochs=1, learning_rate=3e-3))))
    assert found_in(exported_prefix(model).parent) == {}


class Branching(nn.Module):
    """A subgraph: its nodes carry the exporter's notes too."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.cond(value.sum() > 0, lambda batch: batch * 2, lambda batch: batch - 1, (value,))
        outputs: torch.Tensor = result.relu()
        return outputs


@pytest.mark.parametrize("optimize", [True, False])
def test_notes_are_gone_from_subgraphs_and_functions_and_the_result_stays(optimize: bool, tmp_path: Path) -> None:
    sample, path = torch.ones(2, 3), tmp_path / "branching.onnx"
    write_onnx(Branching().eval(), sample, path, ["logits"], optimize=optimize)
    assert found_in(tmp_path) == {}
    model = onnx.load(path)
    assert not any(node.metadata_props for node in model.graph.node)
    (logits,) = onnxruntime.InferenceSession(path).run(["logits"], {"input": sample.numpy()})
    assert np.array_equal(logits, 2 * sample.numpy())


def test_onnx_runtime_joins_a_norm_and_an_activation_with_a_convolution_whose_weights_stay_as_they_are(
    tmp_path: Path,
) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU6()).eval()
    written, optimised = tmp_path / "written.onnx", tmp_path / "optimised.onnx"
    write_onnx(module, torch.zeros(2, 3, 5, 5), written, ["logits"], optimize=False)
    initialisers = {value.name for value in onnx.load(written).graph.initializer}
    assert initialisers >= {name for name, value in module.state_dict().items() if value.ndim}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimised)
    onnxruntime.InferenceSession(written, options)
    assert [node.op_type for node in onnx.load(optimised).graph.node] == ["FusedConv"]
