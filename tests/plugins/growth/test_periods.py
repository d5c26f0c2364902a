"""When widths may grow: after enough batches, and before the learning rate falls."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.lowering import Training
from tuner.plan.parts import RecipePlan
from tuner_growth.control import GrowableNetwork, Rule, decide, initial_state
from tuner_growth.cost import FIXED, LayerCost, NetworkCost
from tuner_growth.edit import Edit
from tuner_growth.periods import LEAST_BATCHES, Periods
from tuner_growth.torch import tail as tail_module
from tuner_growth.torch.tail import GrowingTail

STEPS = 20


@pytest.mark.parametrize(
    ("epochs", "steps", "every", "growing", "parts"),
    [
        (10, 600, 1, 6, 6),
        (10, 250, 1, 6, 2),
        (200, 20, 5, 120, 1),
        (30, 20, 3, 18, 1),
        (8, 6, 1, 4, 1),
        (1, 6, 1, 0, 1),
    ],
)
def test_a_decision_has_a_hundred_batches_where_six_decisions_remain(
    epochs: int, steps: int, every: int, growing: int, parts: int
) -> None:
    periods = Periods.of(epochs, steps)
    assert (periods.every, periods.growing, periods.parts) == (every, growing, parts)
    assert periods.growing <= 0.6 * epochs
    assert sum(periods.end_inside(step) for step in range(1, steps + 1)) == parts - 1
    length = periods.length(whole=False)
    assert length >= LEAST_BATCHES or growing // every < 12
    assert length == periods.length(whole=True) // parts


def growing(edit: Edit, epochs: int = 20, steps: int = STEPS) -> tuple[GrowingTail, Any]:
    """Return a tail and what trains it for an epoch; returns its log."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(64, 6), torch.arange(64) % 3
    tail = GrowingTail(nn.Sequential(nn.Linear(6, 100), nn.ReLU(), nn.Linear(100, 3)), edit, scratch=True)
    optimiser = torch.optim.Adam(tail.parameters(), lr=1e-3, fused=True)

    def loss(body: nn.Module) -> torch.Tensor:
        return functional.cross_entropy(body(inputs), labels)

    tail.begin(Training(optimiser, inputs[:1], loss, steps, 0, RecipePlan(epochs=epochs)))

    def train(epoch: int, room: int | None = None) -> dict[str, float]:
        for _ in range(steps):
            optimiser.zero_grad()
            value = loss(tail)
            value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            tail.before_update(float(value.detach()))
            optimiser.step()
            tail.after_update()
        return tail.after_epoch(epoch, room)

    return tail, train


def test_the_rate_is_constant_while_widths_grow_and_nothing_grows_after() -> None:
    tail, train = growing(Edit(start=0.1, controller="exponential", adapter="net2wider"))
    assert tail.constant_until == pytest.approx(0.6)
    logs = [train(epoch) for epoch in range(1, 20)]
    assert [number for number, log in enumerate(logs, 1) if log] == [2, 4, 6, 8, 10, 12]
    assert [number for number, log in enumerate(logs, 1) if log.get("0.added")] == [6, 12]
    assert tail.constant_until == pytest.approx(0.6)


@pytest.mark.parametrize(("room", "decisions"), [(None, 1 + 2), (10**9, 1 + 1)])
def test_a_long_epoch_has_several_decisions_unless_memory_is_limited(room: int | None, decisions: int) -> None:
    tail, train = growing(Edit(start=0.1, controller="exponential", adapter="dspa"), epochs=5, steps=200)
    logs = [train(epoch, room) for epoch in (1, 2)]  # how much memory is left is not known in the first
    assert len(tail.decisions) == decisions
    assert tail.constant_until == pytest.approx(0.6)
    assert sum(log["0.added"] for log in logs) == sum(one.actions[0] for one in tail.decisions)
    assert logs[-1]["0.width"] == len(tail.body.get_submodule("0").get_parameter("weight"))


def test_the_rate_falls_at_once_where_nothing_can_grow_any_more() -> None:
    full, three = 100 * 6 + 100 + 3 * 100 + 3, 3 * 6 + 3 + 3 * 3 + 3
    tail, train = growing(Edit(start=0.1, controller="exponential", adapter="net2wider", cap=three / full))
    logs = [train(epoch) for epoch in range(1, 11)]
    assert tail.widths == {"0": 3}
    assert [number for number, log in enumerate(logs, 1) if log] == [2, 4, 6]
    assert tail.constant_until == pytest.approx(6 / 20)


def test_a_fixed_tail_has_a_rate_that_falls_from_the_start() -> None:
    tail, train = growing(Edit(start=0.1, controller="fixed"))
    assert tail.constant_until == 0
    assert train(1) == train(2) == {}


@pytest.mark.parametrize(("steps", "recorded"), [(100, 25), (20, 20)])
def test_of_a_long_period_a_few_windows_are_recorded(
    monkeypatch: pytest.MonkeyPatch, steps: int, recorded: int
) -> None:
    calls: list[object] = []
    measure = tail_module.channel_saliency

    def counted(weights: Sequence[nn.Parameter]) -> torch.Tensor:
        calls.append(weights)
        return measure(weights)

    monkeypatch.setattr(tail_module, "channel_saliency", counted)
    tail, train = growing(Edit(start=0.1, controller="ric"), epochs=10, steps=steps)
    train(1)
    assert len(calls) == recorded
    assert len(tail.decisions) == 1


LAYERS = (
    LayerCost("0", 0, FIXED, 0, 6, 1, 1, per_output=1, linear=True),
    LayerCost("2", FIXED, 0, 3, 0, 1, 1, per_output=1, linear=True),
)


@pytest.mark.parametrize(("falls", "periods"), [(False, 5), (True, 0)])
def test_ric_ends_growth_after_two_decisions_without_a_better_loss(falls: bool, periods: int) -> None:
    network = GrowableNetwork(NetworkCost(LAYERS), (10_000,), lambda _: True)
    state = initial_state(Rule(penalty=0.1), (20,))
    ended = 0
    for period in range(1, 8):
        losses = [(1.0 / period if falls else 1.0) * (1 + step % 5 / 10) for step in range(20)]
        saliency = [[1.0 + (step % 3) / period for step in range(20)]]
        state, _ = decide(Rule(penalty=0.1), state, period, saliency, losses, network)
        ended = ended or (period if state.settled else 0)
    assert ended == periods
