"""PyTorch's compiler is imported by what compiles, and by nothing else."""

import subprocess
import sys

import pytest

TRAINS = """
import sys, torch
from tuner.backends.torch.compiler import NAME, defer
defer()
defer()
weight = torch.nn.Parameter(torch.ones(2))
for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    optimiser = make([weight], lr=0.1)
    weight.square().sum().backward()
    optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
    optimiser.zero_grad()
assert NAME + ".convert_frame" not in sys.modules
"""
COMPILES = (
    "doubled = torch.compile(lambda x: 2 * x, backend='eager'); assert doubled(torch.ones(1)) == 2",
    "import torch._dynamo.config as config; assert config.cache_size_limit",
)


@pytest.mark.slow
def test_optimisers_train_without_the_compiler_and_what_asks_for_it_gets_it() -> None:
    code = f"""{TRAINS}
import os
for compiles in {COMPILES}:
    if (child := os.fork()) == 0:
        exec(compiles)
        assert NAME + ".convert_frame" in sys.modules
        exec({TRAINS.partition("assert")[0]!r})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, compiles
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
