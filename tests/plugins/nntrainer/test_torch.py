"""Networks of model files in PyTorch: what each layer computes, how it starts, and its weights in NNTrainer's file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.errors import ModelError
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.torch import FileNetwork, from_ini, weight_bytes

HEAD = "[Model]\nloss = mse\n[in]\ntype = input\n"
END = "[end]\ntype = fully_connected\nunit = 2\n"
#: Shape of the input, and sections.
LAYERS = {
    "conv1d": ("3:1:9", "[c]\ntype = conv1d\nfilters = 4\nkernel_size = 3\nstride = 2\npadding = 1,2\n"),
    "conv1d same": ("1:1:9", "[c]\ntype = conv1d\nfilters = 4\nkernel_size = 4\npadding = same\n"),
    "conv2d": ("2:6:7", "[c]\ntype = conv2d\nfilters = 4\nkernel_size = 3,2\nstride = 2,1\npadding = same\n"),
    "conv2d to a point": ("1:3:3", "[c]\ntype = conv2d\nfilters = 1\nkernel_size = 3,3\n"),
    "max pooling": ("2:6:7", "[p]\ntype = pooling2d\npooling = max\npool_size = 2,3\nstride = 2,2\n"),
    "mean of all": ("2:6:7", "[p]\ntype = pooling2d\npooling = global_average\n"),
    "norm of maps": ("2:3:4", "[b]\ntype = batch_normalization\n"),
    "norm of a vector": ("1:1:4", "[b]\ntype = batch_normalization\n"),
    "norm along the width": ("1:3:4", "[b]\ntype = batch_normalization\n"),
    "gru": ("1:5:3", "[r]\ntype = gru\nunit = 4\n"),
    "gru of all steps": ("1:5:3", "[r]\ntype = gru\nunit = 4\nreturn_sequences = true\n"),
    "gru of one step": ("1:1:3", "[r]\ntype = gru\nunit = 4\nreturn_sequences = true\ndisable_bias = true\n"),
    "lstm": ("1:5:3", "[r]\ntype = lstm\nunit = 4\n"),
    "dropout": ("1:5:3", "[d]\ntype = dropout\ndropout_rate = 0.5\n"),
    "embedding": ("1:1:4", "[e]\ntype = embedding\nin_dim = 9\nout_dim = 3\n"),
    "embedding of one": ("1:1:1", "[e]\ntype = embedding\nin_dim = 9\nout_dim = 3\n"),
    "split and concat": (
        "2:4:3",
        "[s]\ntype = split\naxis = 2\nsplit_number = 2\n[c]\ntype = concat\naxis = 1\ninput_layers = s(1), s(0)\n",
    ),
    "split of a vector": (
        "1:1:4",
        "[s]\ntype = split\naxis = 3\nsplit_number = 2\n[a]\ntype = addition\ninput_layers = s, s\n",
    ),
    "softmax": ("1:1:4", "[a]\ntype = activation\nactivation = softmax\n"),
}  # fmt: skip


def built(folder: Path, shape: str, sections: str) -> FileNetwork:
    path = folder / "model.ini"
    path.write_text(f"{HEAD}input_shape = {shape}\n{sections}")
    return from_ini(str(path))


def layer(model: nn.Module, name: str = "") -> Any:
    return model.get_submodule(f"layers.{name}".removesuffix("."))


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_shapes_and_the_weights_that_the_planner_knows(name: str, tmp_path: Path) -> None:
    shape, sections = LAYERS[name]
    model = built(tmp_path, shape, sections + "[f]\ntype = flatten\n" + END)
    network = read_ini(tmp_path / "model.ini")
    value = torch.zeros(3, *map(int, shape.split(":"))).requires_grad_("embedding" not in name)
    seen: dict[str, int] = {}
    for key, module in layer(model).items():
        module.register_forward_hook(lambda _m, _i, out, key=key: seen.update({key: out[0].numel()}))
    model(value).sum().backward()
    for node in network.nodes:
        if node.name in seen:
            assert seen[node.name] == math.prod(node.traits.shape), node.name
    planned = sum(node.parameters for node in network.nodes)
    assert sum(weight.numel() for weight in model.parameters()) == planned
    assert all(weight.grad is not None for weight in model.parameters())


def gru_of_nntrainer(
    sequence: Floats, weight_ih: Floats, weight_hh: Floats, bias_ih: Floats, bias_hh: Floats
) -> Floats:
    """Return the last state of a GRU by NNTrainer's formulas: gates z, r, g, the reset after the product."""
    units = weight_hh.shape[0]
    state = np.zeros(units, np.float32)
    for row in sequence:
        given, kept = row @ weight_ih + bias_ih, state @ weight_hh + bias_hh
        update, reset = (1 / (1 + np.exp(-(given + kept)[place * units : (place + 1) * units])) for place in (0, 1))
        candidate = np.tanh(given[2 * units :] + reset * kept[2 * units :])
        state = update * state + (1 - update) * candidate
    return state


def test_a_gru_is_nntrainers_with_its_weights_in_its_order(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    shapes = {"weight_ih": (3, 12), "weight_hh": (4, 12), "bias_ih": (12,), "bias_hh": (12,)}
    weights = {name: generator.normal(size=shape).astype("<f4") for name, shape in shapes.items()}
    (tmp_path / "gru.bin").write_bytes(b"".join(value.tobytes() for value in weights.values()) + bytes(8))
    built(tmp_path, "1:5:3", LAYERS["gru"][1])
    model = from_ini(str(tmp_path / "model.ini"), str(tmp_path / "gru.bin"))
    sequences = generator.normal(size=(2, 1, 5, 3)).astype(np.float32)
    ours = model(torch.from_numpy(sequences)).detach().numpy()
    theirs = [gru_of_nntrainer(sequence[0], **weights) for sequence in sequences]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert weight_bytes(model) == (tmp_path / "gru.bin").read_bytes()[:-8]


def test_weights_of_every_kind_are_read_as_they_were_written(tmp_path: Path) -> None:
    sections = (
        "[c]\ntype = conv2d\nfilters = 2\nkernel_size = 2,2\n[b]\ntype = batch_normalization\n"
        "[f]\ntype = flatten\n[fc]\ntype = fully_connected\nunit = 3\nweight_initializer = he_normal\n"
    )
    model = built(tmp_path, "1:3:3", sections).eval()
    with torch.no_grad():
        for value in [*model.parameters(), layer(model, "b").running_var]:
            value.uniform_(0.5, 1)
    path = tmp_path / "weights.bin"
    path.write_bytes(weight_bytes(model) + b"adam and its state")
    again = from_ini(str(tmp_path / "model.ini"), str(path)).eval()
    sample = torch.rand(2, 1, 3, 3)
    torch.testing.assert_close(again(sample), model(sample))
    dense = np.frombuffer(path.read_bytes()[4 * (10 + 8) :], "<f4", 24).reshape(8, 3)  # [inputs, outputs]
    np.testing.assert_array_equal(dense, layer(model, "fc").weight.detach().numpy().T)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0" * 96, "the weights must be 26 32-bit floats, as many as the layers have, got 96 bytes"),
        (b"\0" * 116, "got 116 bytes: give the weights of this model file"),
        (b"\xff" * 104, "the weights must be finite numbers"),
    ],
)
def test_other_weights_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    built(tmp_path, "1:1:12", END)
    (tmp_path / "weights.bin").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        from_ini(str(tmp_path / "model.ini"), str(tmp_path / "weights.bin"))


def test_layers_start_as_their_initialisers_say(tmp_path: Path) -> None:
    spreads: Mapping[str, float] = {
        "xavier_uniform": math.sqrt(2 / 1400), "xavier_normal": math.sqrt(2 / 1400), "lecun_normal": math.sqrt(1 / 400),
        "he_uniform": math.sqrt(2 / 400), "zeros": 0.0,
    }  # fmt: skip
    for name, expected in spreads.items():
        model = built(tmp_path, "1:1:400", f"[f]\ntype = fully_connected\nunit = 1000\nweight_initializer = {name}\n")
        assert float(layer(model, "f").weight.detach().std()) == pytest.approx(expected, rel=0.02)
        assert not layer(model, "f").bias.any()
    table = built(
        tmp_path, "1:1:1", "[e]\ntype = embedding\nin_dim = 400\nout_dim = 90\nweight_initializer = lecun_normal\n"
    )
    assert float(next(table.parameters()).detach().std()) == pytest.approx(math.sqrt(1 / 400), rel=0.02)
