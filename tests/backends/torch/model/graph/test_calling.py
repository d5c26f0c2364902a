"""Models that give more than one tensor, or take more than one argument."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.torch.model.graph.calling import one_to_one
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task

pytestmark = pytest.mark.slow

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

class Averaged(Net):
    def forward(self, pixels, mask=None):
        value = self.body(pixels).relu()
        return {"logits": (self.head(value) + self.other(value)) / 2, "hidden": value}

class Auxiliary(Net):
    def forward(self, value):
        value = self.body(value).relu()
        return (self.head(value), self.other(value)) if self.training else self.head(value)

class Scaled(Net):
    def forward(self, value):
        return torch.stack([self.body(value)[:, row] for row in range(3)], 1)

class Small(Net):
    def forward(self, value):
        return self.body(value)[:, :2]

class Broken(Net):
    def forward(self, value):
        return self.head(value)
"""


@dataclass
class Outputs:
    logits: torch.Tensor
    hidden: torch.Tensor


class Giving(nn.Module):
    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.layer, self.shape = nn.Linear(4, 3), shape

    def forward(self, value: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        outputs = self.layer(value) if mask is None else mask
        return self.shape(outputs, value[:, None])


SAMPLE = torch.rand(2, 4)


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (lambda logits, _: logits, {}),
        (lambda logits, hidden: (hidden, logits), {}),
        (lambda logits, hidden: {"hidden": hidden, "logits": logits}, {}),
        (lambda logits, hidden: {"hidden": hidden, "scores": logits}, {}),
        (Outputs, {}),
        (lambda logits, hidden: {"a": logits, "b": logits + 1, "hidden": hidden}, {"output": "a"}),
        (lambda logits, hidden: (logits, hidden), {"output": "0", "input": "value"}),
    ],
)
def test_the_logits_are_found(shape: Any, names: dict[str, str]) -> None:
    model = Giving(shape).eval()
    one = one_to_one(model, ModelSpec("net:build", **names), SAMPLE)  # type: ignore[arg-type]  # names only
    assert torch.equal(one(SAMPLE), model.layer(SAMPLE))
    assert set(one.state_dict()) == {"layer.weight", "layer.bias"}
    assert type(one).__qualname__ == "Giving"


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        (lambda _, hidden: hidden, {}, r"must return one tensor \[n, classes\], but net:build returns \[2, 1, 4\]"),
        (lambda _, hidden: (hidden, "text"), {}, r"returns \(0 \[2, 1, 4\], 1 a str\) none is: give another model"),
        (
            lambda one, _: {"a": one, "b": one},
            {},
            r"\(a \[2, 3\], b \[2, 3\]\) several are: give model\.output = \"a\"",
        ),
        (
            lambda one, _: {"a": one},
            {"output": "logits"},
            r"\(a \[2, 3\]\) 'logits' is none: give model\.output = \"a\"",
        ),
        (lambda one, _: one, {"input": "pixels"}, r"model\.input: net:build takes no 'pixels': it takes value, mask"),
        (
            lambda one, _: one + torch.rand(7),
            {},
            r"does not take inputs of shape \[2, 4\]: RuntimeError: .*test_calling\.py, line \d+\); give samples",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(shape: Any, names: dict[str, str], message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        one_to_one(Giving(shape).eval(), ModelSpec("net:build", **names), SAMPLE)  # type: ignore[arg-type]  # names only
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "shape", "way_out"),
    [
        (
            (nn.Linear(4, 3),),
            (7,),
            "its first layer takes 4 numbers, the samples have 7: give samples or a model of as m",
        ),
        (
            (nn.Conv2d(3, 2, 3),),
            (1, 8, 8),
            "its first layer takes 3 channels, the samples have 1: give samples or a mod",
        ),
        (
            (nn.Conv1d(2, 2, 3), nn.Flatten(), nn.Linear(8, 3)),
            (2, 9),
            r"give samples of the length \(input\.window\) th",
        ),
        (
            (nn.Conv2d(1, 2, 8), nn.Flatten(), nn.Linear(2, 3)),
            (1, 9, 9),
            r"give samples of the size \(input\.size\) th",
        ),
    ],
)
def test_what_samples_lack_is_said(layers: tuple[nn.Module, ...], shape: tuple[int, ...], way_out: str) -> None:
    with pytest.raises(TaskError, match=f"does not take inputs of shape .*; {way_out}"):
        one_to_one(nn.Sequential(*layers).eval(), ModelSpec("net:build"), torch.rand(1, *shape))


def test_an_axis_of_one_channel_is_dropped_where_the_model_does_not_take_it() -> None:
    network, sample = nn.GRU(4, 3, batch_first=True).eval(), torch.rand(2, 1, 5, 4)
    expected = network(sample[:, 0])[0][:, -1]

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            last: torch.Tensor = self.body(value)[0][:, -1]
            return last

    one = one_to_one(Last().eval(), ModelSpec("net:build"), sample)
    assert torch.equal(one(sample), expected)


def opened(folder: Path, name: str, **names: str) -> OpenModel:
    (folder / "net.py").write_text(NET)
    spec = InputSpec("arrays")
    samples = ArraySamples(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32), np.arange(8) % 4, spec)
    model = ModelSpec(f"{folder}/net.py:{name}", **names)  # type: ignore[arg-type]  # names only
    domain = Domain(samples, samples)
    return load(Task("t", model, spec, "single-label", domain, None, tuple("abcd"), (0, 2, 1), (0, 1, 2, 3)))


def test_averaged_heads_are_all_given_the_labels_rows(tmp_path: Path) -> None:
    model = opened(tmp_path, "Averaged", input="pixels", output="logits")
    assert {len(model.model.get_parameter(f"{head}.weight")) for head in ("head", "other")} == {4}
    assert model.model(torch.rand(5, 4)).shape == (5, 4)
    assert (model.model(torch.rand(5, 4))[:, 3] == 0).all()
    assert model.info.traced_by == "torch.fx"


def test_heads_for_training_only_are_dropped(tmp_path: Path) -> None:
    model = opened(tmp_path, "Auxiliary")
    assert len(model.model.get_parameter("other.weight")) == 3
    tail = model.tail(0).train()
    assert tail(torch.rand(5, 4)).shape == (5, 4)
    assert "other.weight" not in tail.state_dict()
    assert "other.weight" in model.model.state_dict()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Scaled", r"the outputs of .*net\.py:Scaled come from no linear layer whose rows could be chosen"),
        (
            "Small",
            r"take row 2 of the head, .* 2 outputs: give each class its row in global.classes, or a model with 3",
        ),
        ("Broken", r"does not take inputs of shape \[1, 4\]: RuntimeError: .* \(net\.py, line \d+\); give samples of"),
    ],
)
def test_a_head_that_cannot_be_widened_is_one_line(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        opened(tmp_path, name)
