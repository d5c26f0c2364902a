"""The contract of loss terms: each of its checks fails for a bad one; `tests/plugins/test_distill.py` is a good one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tuner.backends.losses import LossInputs
from tuner.plan.parts import LossTerm
from tuner_testing import LossContract

FAILS = pytest.fail.Exception


def contract_of(function: Callable[[LossInputs], Any], **further: object) -> LossContract:
    """Return the contract of a loss term."""

    class Contract(LossContract):
        term = LossTerm("bad", 1.0)
        losses = {"bad": lambda batch, _settings: function(batch)}  # noqa: RUF012 - the test's own

    for name, value in further.items():
        setattr(Contract, name, value)
    return Contract()


def size(batch: LossInputs) -> torch.Tensor:
    losses: torch.Tensor = batch.logits.square().mean(1)
    return losses


def in_place(batch: LossInputs) -> torch.Tensor:
    batch.features.add_(1)
    return size(batch)


def valued(batch: LossInputs) -> torch.Tensor:
    return size(batch) * float(batch.features.mean())


@pytest.mark.parametrize(
    ("check", "function", "message"),
    [
        ("every_sample_has_one_finite_loss", lambda batch: size(batch).mean(), r"got \[\]: leave out .mean\(\)"),
        ("every_sample_has_one_finite_loss", lambda _batch: 1.0, "got float"),
        ("every_sample_has_one_finite_loss", lambda batch: batch.logits.exp().sum(1), "must return finite float32"),
        ("every_sample_has_one_finite_loss", lambda batch: size(batch).double(), "got torch.float64"),
        ("a_gradient_reaches_the_logits", lambda batch: size(batch) * 0, "a gradient by the logits, but it is 0"),
        (
            "a_gradient_reaches_the_logits",
            lambda batch: (batch.logits - batch.logits).pow(2).sum(1).sqrt(),
            "must have a finite gradient",
        ),
        ("it_is_pure", lambda batch: size(batch) + torch.rand(len(batch.logits)), "draw no random numbers"),
        ("it_is_pure", in_place, "use no operator in place"),
        (
            "a_samples_loss_depends_on_that_sample_alone",
            lambda batch: size(batch) - size(batch).mean(),
            "must not depend on the other samples",
        ),
        ("it_can_be_traced", valued, "must be traceable"),
    ],
)
def test_every_check_fails_for_a_bad_term(check: str, function: Callable[[LossInputs], Any], message: str) -> None:
    with pytest.raises(FAILS, match=message):
        getattr(contract_of(function), f"test_{check}")()


def test_a_kind_that_the_hook_does_not_have_is_named() -> None:
    with pytest.raises(FAILS, match="'bad' must be computed by tuner_losses, which has: another"):
        contract_of(size, losses={"another": size}).test_it_is_pure()


def test_a_term_may_do_without_being_traced() -> None:
    with pytest.raises(pytest.skip.Exception, match="eager loop only"):
        contract_of(valued, traceable=False).test_it_can_be_traced()


def test_the_checks_are_all_seen() -> None:
    assert len([name for name in dir(LossContract) if name.startswith("test_")]) == 6
