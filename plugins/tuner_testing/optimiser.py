"""What every optimiser obeys."""

from typing import Any, ClassVar

import pytest

from tuner.backends.extensions import OptimiserError, OptimiserFactory
from tuner.plan.parts import RecipePlan

STEPS, RATE = 3, 1e-2


class OptimiserContract:
    """What every optimiser obeys.

    Attributes:
        factory: The one under test, as the plugin's ``tuner_optimisers`` returns it for the backend ``torch``.
    """

    factory: ClassVar[OptimiserFactory]

    def test_it_takes_every_parameter_once(self) -> None:
        """A parameter in no group does not train, and one in two groups is stepped twice."""
        optimiser, parameters = self._made()
        held = [id(value) for group in optimiser.param_groups for value in group["params"]]
        if sorted(held) != sorted(map(id, parameters)):
            pytest.fail(
                f"an optimiser must take each of {len(parameters)} parameters once, but its groups have {len(held)} "
                f"({len(set(held))} different ones): pass all of them on"
            )

    def test_a_step_changes_every_parameter_and_leaves_it_finite(self) -> None:
        """The loop sets ``lr`` of every group before each step."""
        import torch

        optimiser, parameters = self._made()
        before = [value.detach().clone() for value in parameters]
        self._run(optimiser, parameters, STEPS)
        for value, old in zip(parameters, before, strict=True):
            if not bool(torch.isfinite(value).all()):
                pytest.fail(f"an optimiser must leave weights finite, but after {STEPS} steps one is {value.tolist()}")
            if torch.equal(value, old):
                pytest.fail("an optimiser must change every parameter that has a gradient, but one stays as it was")

    def test_a_rate_of_zero_changes_nothing(self) -> None:
        """The learning rate is the loop's: it may be 0 while training warms up."""
        import torch

        optimiser, parameters = self._made()
        before = [value.detach().clone() for value in parameters]
        self._run(optimiser, parameters, 1, rate=0.0)
        if not all(torch.equal(value, old) for value, old in zip(parameters, before, strict=True)):
            pytest.fail('an optimiser must step by group["lr"], but at lr = 0 it changes weights: read lr in `step`')

    def test_an_interrupted_training_continues_bit_for_bit(self) -> None:
        """What `state_dict` gives is all that it needs to go on."""
        import copy

        import torch

        optimiser, parameters = self._made()
        self._run(optimiser, parameters, STEPS)
        state, weights = copy.deepcopy(optimiser.state_dict()), [value.detach().clone() for value in parameters]
        self._run(optimiser, parameters, STEPS)
        again, others = self._made()
        with torch.no_grad():
            for value, kept in zip(others, weights, strict=True):
                value.copy_(kept)
        again.load_state_dict(state)
        self._run(again, others, STEPS)
        if not all(torch.equal(one, other) for one, other in zip(parameters, others, strict=True)):
            pytest.fail(
                "an optimiser must continue from its state_dict bit for bit, but weights differ: keep everything in "
                "`state`, and draw no random numbers"
            )

    def _made(self) -> tuple[Any, list[Any]]:
        import torch

        draw = torch.Generator().manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((4, 3), (4,), (2, 3, 1, 1))]
        optimiser = type(self).factory(parameters, RecipePlan(learning_rate=RATE))
        if not isinstance(optimiser, torch.optim.Optimizer):
            pytest.fail(f"a factory must return a torch.optim.Optimizer, but it returned {optimiser!r}")
        return optimiser, parameters

    def _run(self, optimiser: Any, parameters: list[Any], steps: int, rate: float = RATE) -> None:
        """Step on the sum of squares, whose gradient is nowhere 0."""
        import torch

        from tuner.backends.torch.step.optimiser import set_rate, update

        def gradients() -> float:
            optimiser.zero_grad()
            loss: Any = torch.stack([value.square().sum() for value in parameters]).sum()
            loss.backward()
            return float(loss.detach())

        for _ in range(steps):
            set_rate(optimiser, rate)
            try:
                update(optimiser, "under test", gradients)
            except OptimiserError as error:
                pytest.fail(str(error))
