"""Runs a bundle on a device, and trains it there: the base package only, no tensor library."""

from typing import TYPE_CHECKING, Any

from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import Bundle
from tuner.runtime.infer.personaliser import Personaliser
from tuner.runtime.infer.prediction import Prediction, Second, Window

if TYPE_CHECKING:
    from tuner.runtime.service.orchestrator import Orchestrator, Policy, World
    from tuner.runtime.service.ring import Ring
    from tuner.runtime.service.round import RoundTraining
    from tuner.runtime.train.base import DeviceTrainer
    from tuner.runtime.train.exits import ExitsTrainer
    from tuner.runtime.train.solved import SolvingTrainer
    from tuner.runtime.train.tail import Trainer

__all__ = [
    "Bundle",
    "DeviceTrainer",
    "ExitPolicy",
    "ExitsTrainer",
    "Orchestrator",
    "Personaliser",
    "Policy",
    "Prediction",
    "Ring",
    "RoundTraining",
    "Second",
    "SolvingTrainer",
    "Trainer",
    "Window",
    "World",
]

_MODULES = {
    "DeviceTrainer": "train.base",
    "ExitsTrainer": "train.exits",
    "Orchestrator": "service.orchestrator",
    "Policy": "service.orchestrator",
    "Ring": "service.ring",
    "RoundTraining": "service.round",
    "SolvingTrainer": "train.solved",
    "Trainer": "train.tail",
    "World": "service.orchestrator",
}


def __getattr__(name: str) -> Any:
    """Import training and service on first use: a process that only predicts has no memory to spare for them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tuner.runtime' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tuner.runtime.{_MODULES[name]}"), name)
