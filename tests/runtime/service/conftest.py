"""Bundles in service."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.service.lived import ALWAYS, POLICY, round_training
from tuner.runtime import Orchestrator, Policy, Ring, World
from tuner.runtime.service.conditions import Readings


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Orchestrator]:
    """Return a function that puts a bundle into service, with a ring of its own and draws that repeat."""

    def start(bundle: Path, trainer: Any = None, policy: Policy = POLICY, readings: Readings = ALWAYS) -> Orchestrator:
        training = None if trainer is None else round_training(trainer, exported=bundle)
        world = World(lambda: readings, draw=random.Random(0), threads=1)
        return Orchestrator(bundle, Ring(tmp_path / "ring"), training, policy, world)

    return start
