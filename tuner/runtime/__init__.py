"""What runs a bundle on the device, and trains it there again: the base package only, no tensor library."""

from typing import TYPE_CHECKING, Any

from tuner.runtime.bundle import Bundle, Exits
from tuner.runtime.personaliser import Personaliser, Prediction, Window

if TYPE_CHECKING:
    from tuner.runtime.exits_trainer import ExitsTrainer
    from tuner.runtime.orchestrator import Orchestrator, Policy, World
    from tuner.runtime.ring import Ring
    from tuner.runtime.rounds import Training, Trains
    from tuner.runtime.trainer import Trainer

__all__ = [
    "Bundle",
    "Exits",
    "ExitsTrainer",
    "Orchestrator",
    "Personaliser",
    "Policy",
    "Prediction",
    "Ring",
    "Trainer",
    "Training",
    "Trains",
    "Window",
    "World",
]

_SERVICE = {
    "ExitsTrainer": "exits_trainer",
    "Orchestrator": "orchestrator",
    "Policy": "orchestrator",
    "Ring": "ring",
    "Trainer": "trainer",
    "Training": "rounds",
    "Trains": "rounds",
    "World": "orchestrator",
}


def __getattr__(name: str) -> Any:
    """Import what the service needs when it is first used: who only predicts has no memory to spare for it."""
    if name not in _SERVICE:
        raise AttributeError(f"module 'tuner.runtime' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tuner.runtime.{_SERVICE[name]}"), name)
