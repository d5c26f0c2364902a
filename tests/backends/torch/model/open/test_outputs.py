"""What a module gives: probabilities at its end, outputs that differ each time, layers that cannot be changed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.errors import TaskError
from tuner.targets import LossKind
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task

CODE = """
import torch
from torch import nn
def body():
    torch.manual_seed(5)
    return [nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)]
def plain(): return nn.Sequential(*body())
def softmax(): return nn.Sequential(*body(), nn.Softmax(dim=1))
def softmax_minus(): return nn.Sequential(*body(), nn.Softmax(dim=-1), nn.Identity())
def log_softmax(): return nn.Sequential(*body(), nn.LogSoftmax(dim=1))
def sigmoid(): return nn.Sequential(*body(), nn.Sigmoid())
class Net(nn.Module):
    def __init__(self, how):
        super().__init__(); self.body, self.how, self.act = nn.Sequential(*body()), how, nn.Softmax(1)
    def forward(self, x):
        if self.how == "early": return self.body(x * nn.functional.sigmoid(x))
        x = self.body[:-1](x)
        if self.how == "dropout": x = nn.functional.dropout(x, 0.5)
        if self.how == "noise": x = x + torch.randn_like(x)
        x = self.body[-1](x)
        if self.how == "inner": return self.act(x)
        if self.how == "softmax": return torch.softmax(x, -1)
        if self.how == "method": return x.softmax(1)
        if self.how == "by hand": return x.exp() / x.exp().sum(1, keepdim=True)
        if self.how == "sigmoid": return torch.sigmoid(x)
        if self.how == "log": return nn.functional.log_softmax(x, 1)
        return x
def net(how): return Net(how)
def gate():
    act = nn.Sigmoid()
    return nn.Sequential(body()[0], act, *body()[2:], act)
def scripted(): return torch.jit.script(plain())
def lazy():
    torch.manual_seed(5)
    return nn.Sequential(nn.LazyConv2d(6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))
def quantised():
    torch.backends.quantized.engine = "qnnpack"
    return torch.ao.quantization.quantize_dynamic(plain(), {nn.Linear})
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.py"
    path.write_text(CODE)
    return path


def opened(
    net: Path, factory: str, loss: LossKind = "single-label", **arguments: str
) -> tuple[OpenModel, torch.Tensor]:
    generator = np.random.default_rng(0)
    spec = InputSpec("arrays")
    x = generator.normal(size=(12, 1, 8, 8)).astype(np.float32)
    y = np.arange(12) % 3 if loss == "single-label" else np.eye(3, dtype=np.float32)[np.arange(12) % 3]
    samples = ArraySamples(x, y, spec)
    domain = Domain(samples, samples)
    model = ModelSpec(f"{net}:{factory}", tuple(arguments.items()))
    task = Task("t", model, spec, loss, domain, domain, ("a", "b", "c"), (0, 1, 2), (0, 1, 2))
    return load(task), torch.from_numpy(x)


LEFT_OUT: list[tuple[str, LossKind, dict[str, str], str]] = [
    ("softmax", "single-label", {}, "the Softmax at the end of .*net.py:softmax"),
    ("softmax_minus", "single-label", {}, "the Softmax at the end"),
    ("log_softmax", "single-label", {}, "the LogSoftmax at the end"),
    ("net", "single-label", {"how": "inner"}, r"the Softmax at the end of .* \(act\)"),
    ("net", "single-label", {"how": "log"}, ""),
    ("net", "single-label", {"how": "early"}, ""),
    ("plain", "single-label", {}, ""),
    ("sigmoid", "multi-label", {}, "the Sigmoid at the end"),
    ("plain", "multi-label", {}, ""),
    ("lazy", "single-label", {}, ""),
]


@pytest.mark.parametrize(("factory", "loss", "arguments", "note"), LEFT_OUT)
def test_the_probabilities_are_the_networks_own(
    net: Path, factory: str, loss: LossKind, arguments: dict[str, str], note: str, recwarn: pytest.WarningsRecorder
) -> None:
    import importlib.util
    import re

    spec = importlib.util.spec_from_file_location("own_net", net)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own: nn.Module = getattr(module, factory)(**arguments).eval()
    model, x = opened(net, factory, loss, **arguments)
    if factory == "lazy":
        with torch.no_grad():
            own(x)
        own.load_state_dict(model.model.state_dict())
    with torch.no_grad():
        theirs, logits = own(x), model.model(x)
    last = "".join(type(part).__name__ for part in own.modules())
    if note or arguments.get("how") == "log":
        theirs = theirs.exp() if "LogSoftmax" in last or arguments.get("how") == "log" else theirs
    else:
        theirs = torch.sigmoid(theirs) if loss == "multi-label" else torch.softmax(theirs, 1)
    ours = torch.sigmoid(logits) if loss == "multi-label" else torch.softmax(logits, 1)
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert re.match(note, model.info.note)
    assert bool(model.info.note) == bool(note)


REFUSED: list[tuple[str, LossKind, dict[str, str], str]] = [
    ("net", "single-label", {"how": "softmax"}, "ends in softmax, but its outputs must be logits"),
    ("net", "single-label", {"how": "method"}, "ends in softmax, but"),
    ("net", "single-label", {"how": "by hand"}, "ends in softmax, but"),
    ("net", "multi-label", {"how": "sigmoid"}, "ends in sigmoid, but"),
    (
        "net",
        "single-label",
        {"how": "sigmoid"},
        "ends in Sigmoid, so it was trained with another loss than loss.kind = 'single-label'",
    ),
    ("sigmoid", "single-label", {}, "ends in Sigmoid, so it was trained"),
    ("softmax", "multi-label", {}, "ends in Softmax, so it was trained with another loss"),
    ("gate", "multi-label", {}, "ends in sigmoid, but"),
    ("net", "single-label", {"how": "dropout"}, "answers the same sample differently each time in evaluation mode"),
    ("net", "single-label", {"how": "noise"}, "differently each time"),
    ("scripted", "single-label", {}, "returns a TorchScript module"),
    ("quantised", "single-label", {}, "returns a quantised module"),
]


@pytest.mark.parametrize(("factory", "loss", "arguments", "message"), REFUSED)
@pytest.mark.filterwarnings("ignore")  # what torch says of its own ways to script and to quantise
def test_what_would_be_read_wrongly_is_one_line(
    net: Path, factory: str, loss: LossKind, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        opened(net, factory, loss, **arguments)
    assert "\n" not in str(caught.value)
