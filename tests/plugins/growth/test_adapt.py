"""Adapters of growth: what new channels begin with, and how gates lead them in."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.resize import install
from tuner_growth import ADAPTERS as NAMES
from tuner_growth.torch.adapt import ADAPTERS, _scale, dspa
from tuner_growth.torch.gates import MOVE_EVERY, Gates
from tuner_growth.torch.site import NOISE, Adapted, Site
from tuner_growth.torch.tail import refresh
from tuner_growth.torch.widths import Width, find, traced, weight_of


class Net(nn.Module):
    """Every kind of layer that grows: convolution, norm, depthwise, a residual tie, flattening, linears."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.along, self.point = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False), nn.Conv2d(4, 4, 1)
        self.hidden, self.head = nn.Linear(4 * 9, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.relu(x + self.point(functional.relu(self.along(x))))
        flattened = torch.flatten(functional.max_pool2d(x, 2), 1)
        outputs: torch.Tensor = self.head(functional.relu(self.hidden(flattened)))
        return outputs


VALUES = torch.randn(16, 2, 6, 6, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(16) % 3


def loss(body: nn.Module) -> torch.Tensor:
    body.eval()
    return functional.cross_entropy(body(VALUES), LABELS)


def net() -> nn.Module:
    torch.manual_seed(1)
    made = Net()
    for _ in range(3):
        made(VALUES)  # gives the norm statistics
    return traced(made.eval())


def site(body: nn.Module, index: int, added: int = 2, seed: int = 0) -> Site:
    width = find(body).growable[index]  # type: ignore[arg-type]  # `traced` returned it
    now = replace(width, size=len(weight_of(body, width.name)))
    generator = torch.Generator().manual_seed(seed)
    return Site(body, now, added, torch.rand(now.size, generator=generator), generator, loss)


def grown(body: nn.Module, adapter: str, index: int, added: int = 2) -> tuple[Site, Adapted]:
    where = site(body, index, added)
    adapted = ADAPTERS[adapter](where)
    install(body, adapted.changes)
    return where, adapted


def test_every_adapter_a_plan_may_name_is_there() -> None:
    assert tuple(ADAPTERS) == NAMES


@pytest.mark.parametrize("adapter", NAMES)
@pytest.mark.parametrize("index", [0, 1])
def test_every_layer_grows_and_outputs_keep_their_shape(adapter: str, index: int) -> None:
    body = net()
    where, _ = grown(body, adapter, index, added=3)
    assert len(weight_of(body, where.width.name)) == where.width.size + 3
    assert body(VALUES).shape == (16, 3)
    body.train()
    functional.cross_entropy(body(VALUES), LABELS).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(one.grad is not None and one.grad.isfinite().all() for one in body.parameters())


@pytest.mark.parametrize(
    ("adapter", "index", "added", "keeps"),
    [
        *(("net2wider", index, added, True) for index in (0, 1) for added in (1, 2, 4)),
        *((adapter, 1, 2, False) for adapter in ("net2wider-noisy", "cgap")),
    ],
)
def test_net2wider_keeps_the_function_and_halving_adapters_change_it(
    adapter: str, index: int, added: int, *, keeps: bool
) -> None:
    body = net()
    before = body(VALUES)
    grown(body, adapter, index, added)
    assert torch.allclose(body(VALUES), before, atol=1e-5 if keeps else 1e-3) == keeps


def silenced(body: nn.Module, width: Width) -> None:
    """Cut newborn channels off from their successors."""
    with torch.no_grad():
        for name in width.consumers:
            weight = body.get_submodule(name).get_parameter("weight")
            blocks = weight.reshape(len(weight), len(weight_of(body, width.name)), -1)
            blocks[:, width.size :] = 0


@pytest.mark.parametrize("index", [0, 1])
def test_dspa_leaves_what_existing_channels_give(index: int) -> None:
    body = net()
    before = body(VALUES)
    where, adapted = grown(body, "dspa", index)
    assert adapted.scales.keys() == {*where.width.producers, *where.width.depthwise}
    silenced(body, where.width)
    assert torch.allclose(body(VALUES), before, atol=1e-4)


def test_dspa_selects_the_channels_most_like_the_least_salient_one() -> None:
    body = net()
    with torch.no_grad():
        weight = body.get_submodule("hidden").get_parameter("weight")
        weight[4] = 2 * weight[1]
    where = replace(site(body, 1, added=2), saliency=torch.tensor([5.0, 0.1, 5, 5, 5, 5]))
    old = weight_of(body, "hidden").clone()
    newborn = dspa(where).changes["hidden.weight"][6:]
    scale = float(old.std(correction=0)) * (3 * 36) ** 0.5 / (6 / 8)
    assert (newborn[0] * scale - old[1]).abs().max() <= NOISE + 1e-6
    assert (newborn[1] * scale - old[4]).abs().max() <= NOISE + 1e-6


def test_the_scale_of_fresh_weights_is_one() -> None:
    weight = nn.Conv2d(50, 60, 5).weight.detach()
    assert _scale(weight, 50 * 25, 1.0) == pytest.approx(1, abs=0.02)
    assert _scale(torch.zeros(4, 3), 3, 1.0) == 1.0


def test_gates_move_in_the_weights_and_meet_at_their_last_step() -> None:
    body = net()
    where, _ = grown(body, "net2wider", 1, added=2)
    layer = body.get_submodule("hidden")
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    gates = Gates(body, where.width.size, {"hidden": 1.5}, steps=2 * MOVE_EVERY + 3)
    for _ in range(MOVE_EVERY):
        gates.after_update()
    gates = Gates(body, **gates.state())  # as a trial continues
    for _ in range(MOVE_EVERY + 9):
        gates.after_update()
    met = (6 + 1.5 * 2) / 8
    for parameter, was in zip(layer.parameters(), before, strict=True):
        assert torch.allclose(parameter[:6], was[:6] * met / 1.5)
        assert torch.allclose(parameter[6:], was[6:] * met)


def test_fresh_weights_keep_the_variance_of_what_a_depthwise_layer_reads() -> None:
    body = nn.Sequential(nn.Conv1d(8, 64, 12), nn.ReLU(), nn.Conv1d(64, 64, 12, groups=64, bias=False))
    torch.manual_seed(0)
    refresh(body)
    signals = torch.randn(64, 8, 100)
    with torch.no_grad():
        ratio = float(body(signals).var() / body[0](signals).var())
    assert ratio == pytest.approx(1, abs=0.3)
