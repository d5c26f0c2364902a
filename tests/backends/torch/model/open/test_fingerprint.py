"""Fingerprints tell models apart."""

import pytest
import torch
from torch import fx, nn

from tuner.backends.torch.model.open.fingerprint import state_hash, structure_hash

pytestmark = pytest.mark.slow


def test_weights_that_are_alike_under_another_activation_are_another_prefix() -> None:
    def network(activation: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        return fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), activation, nn.MaxPool2d(2, 2)))

    relu, same, tanh = network(nn.ReLU()), network(nn.ReLU()), network(nn.Tanh())
    wide = network(nn.LeakyReLU(0.1)), network(nn.LeakyReLU(0.2))
    assert state_hash(relu) == state_hash(tanh)
    assert relu.code == tanh.code  # why the code alone says too little
    assert structure_hash(relu) == structure_hash(same)
    assert len({structure_hash(one) for one in (relu, tanh, *wide)}) == 4
