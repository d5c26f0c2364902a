"""Exported files say nothing of the device that they were made on."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from tests.backends.torch.plans import places_in
from tuner.backends.torch.onnx.inference import write_onnx

pytestmark = pytest.mark.slow


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
    assert places_in(tmp_path) == {}
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


@pytest.mark.parametrize(
    ("between", "features"),
    [(nn.AdaptiveAvgPool2d((1, 1)), 4), (nn.AdaptiveAvgPool2d(2), 16), (nn.BatchNorm2d(4), 144)],
)
def test_a_graph_is_written_right_whether_onnx_has_all_of_its_operators_or_not(
    between: nn.Module, features: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.ReLU6(), between, nn.Flatten(), nn.Linear(features, 2), nn.BatchNorm1d(2)
    module, images, path = nn.Sequential(*layers).eval(), torch.rand(3, 3, 8, 8), tmp_path / "written.onnx"
    with torch.inference_mode():
        expected = module(images).numpy()
    write_onnx(module, images[:2], path, ["logits"])
    (logits,) = onnxruntime.InferenceSession(path).run(["logits"], {"input": images.numpy()})
    assert logits == pytest.approx(expected, abs=1e-5)
