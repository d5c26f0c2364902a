"""Bundles in service."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bundle.handmade import make, pointing, sample
from tests.plugins.watch.lived import ALWAYS, POLICY, round_training
from tuner_watch.conditions import Readings
from tuner_watch.orchestrator import Orchestrator, Policy, World
from tuner_watch.ring import Ring

__all__ = ["make", "pointing", "sample"]


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Orchestrator]:
    """Return a function that puts a bundle into service, with a ring of its own and draws that repeat."""

    def start(bundle: Path, trainer: Any = None, policy: Policy = POLICY, readings: Readings = ALWAYS) -> Orchestrator:
        training = None if trainer is None else round_training(trainer, exported=bundle)
        world = World(lambda: readings, draw=random.Random(0), threads=1)
        return Orchestrator(bundle, Ring(tmp_path / "ring"), training, policy, world)

    return start
