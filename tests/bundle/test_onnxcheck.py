"""What an ONNX file of a bundle may hold; the hostile ones are in `benchmarks.limits.hostile.models`."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, defs, helper, numpy_helper

from benchmarks.limits.hostile.models import numbers, plain
from tests.bundle.handmade import model
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.bundle.onnx_check import MOST_FIELDS, OPERATORS, check_model
from tuner.errors import BundleError

ROOT = Path(__file__).parents[2]


def test_every_operator_computes_tensors_from_tensors() -> None:
    schemas = {schema.name: schema for schema in defs.get_all_schemas() if schema.domain == ""}
    assert schemas.keys() >= OPERATORS
    for name in OPERATORS:
        kinds = {attribute.type for attribute in schemas[name].attributes.values()}
        assert not kinds & {defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS}, name
        types = {kind for formal in (*schemas[name].inputs, *schemas[name].outputs) for kind in formal.types}
        assert any(kind.startswith("tensor(") for kind in types), name


def test_every_operator_that_is_written_here_is_known() -> None:
    names = {schema.name for schema in defs.get_all_schemas() if schema.domain == ""}
    paths = [*(ROOT / "tuner/backends").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    written = {word for path in paths for word in re.findall(r'"([A-Z]\w+)"', path.read_text())} & names
    assert len(written) > 50
    assert written <= OPERATORS


@pytest.mark.parametrize("path", sorted((ROOT / "tests/fixtures").rglob("*.onnx")), ids=str)
def test_what_was_exported_is_accepted(path: Path) -> None:
    check_model(path)


def test_constants_in_every_field_and_a_size_that_follows_the_batch_are_accepted(tmp_path: Path) -> None:
    typed = [
        helper.make_tensor("floats", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("int32s", TensorProto.INT32, [2], [1, -2]),
        helper.make_tensor("int64s", TensorProto.INT64, [2], [1, -2]),
        helper.make_tensor("doubles", TensorProto.DOUBLE, [2], [1.0, 2.0]),
        helper.make_tensor("halves", TensorProto.FLOAT16, [2], np.ones(2, np.float16)),
        helper.make_tensor("nothing", TensorProto.INT64, [0], []),
        numpy_helper.from_array(np.array(3.0, np.float32), "scalar"),
    ]
    nodes = [
        helper.make_node("Shape", ["input"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        helper.make_node("Expand", ["token", "wanted"], ["tokens"]),
    ]
    sizes = [numbers("first", 0), numbers("rest", 1, 64), numpy_helper.from_array(np.ones((1, 1, 64)), "token")]
    for made in (plain(constants=typed), plain(nodes, sizes)):
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        check_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("place", ["node", "output", "value", "constant"])
def test_names_that_a_terminal_would_obey_are_refused(place: str, tmp_path: Path) -> None:
    name = "\x1b]0;owned\x07\u202e"
    made = plain([helper.make_node("Identity", ["input"], [name if place == "output" else "x"])], [numbers("own", 1)])
    if place == "node":
        made.graph.node[0].name = name
    if place == "value":
        made.graph.output[0].name = name
    if place == "constant":
        made.graph.initializer[0].name = name
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(BundleError, match=r"holds the name '\\x1b\]0;owned\\x07\\u202e', which is not printable"):
        check_model(tmp_path / "model.onnx")


def test_a_check_takes_no_longer_than_its_number_of_fields(tmp_path: Path) -> None:
    model(tmp_path / "model.onnx", np.eye(3), carries=False)
    with (tmp_path / "model.onnx").open("ab") as file:
        file.write(b"\x08\x09" * (MOST_FIELDS + 1))  # the version, again and again
    with pytest.raises(BundleError, match="more than 1,000,000 parts"):
        check_model(tmp_path / "model.onnx")


class Resized(torch.nn.Module):
    """It splits, doubles and joins maps."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        first, second = maps.chunk(2, 1)
        third, fourth = first.split([1, 1], 1)  # type: ignore[no-untyped-call]  # PyTorch has no type of it
        larger = torch.nn.functional.interpolate(torch.cat((third, fourth, second), 1), scale_factor=2.0)
        return larger.mean((2, 3))


class Spectrum(torch.nn.Module):
    """It reads sound by its spectrum."""

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(sound[:, 0], 64, 16, window=torch.hann_window(64), return_complex=True)
        return torch.view_as_real(spectrum).square().sum((2, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "shape"), [(Resized(), (2, 4, 6, 6)), (Spectrum(), (2, 1, 400))])
def test_what_ordinary_models_are_exported_to_is_accepted(
    tmp_path: Path, module: torch.nn.Module, shape: tuple[int, ...]
) -> None:
    write_onnx(module.eval(), torch.randn(shape), tmp_path / "model.onnx", ["output"], optimize=False)
    check_model(tmp_path / "model.onnx")
