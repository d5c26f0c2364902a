"""Runs a bundle on a device, and trains it there: the base package only, no tensor library."""

from typing import TYPE_CHECKING, Any

from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.format import Bundle
from tuner.distribution import offered
from tuner.runtime.infer.personaliser import Personaliser
from tuner.runtime.infer.prediction import Prediction, Second, Window

if TYPE_CHECKING:
    from tuner.runtime.train.base import DeviceTrainer
    from tuner.runtime.train.exits import ExitsTrainer
    from tuner.runtime.train.solved import SolvingTrainer
    from tuner.runtime.train.tail import Trainer

__all__ = [
    "Bundle",
    "DeviceTrainer",
    "ExitPolicy",
    "ExitsTrainer",
    "Personaliser",
    "Prediction",
    "Second",
    "SolvingTrainer",
    "Trainer",
    "Window",
]

_MODULES = {
    "DeviceTrainer": "train.base",
    "ExitsTrainer": "train.exits",
    "SolvingTrainer": "train.solved",
    "Trainer": "train.tail",
}


def __getattr__(name: str) -> Any:
    """Import training, and what plugins offer here, on first use: a process that only predicts has no memory for it."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"tuner.runtime.{_MODULES[name]}"), name)
    if not name.startswith("_") and (point := offered("tuner.runtime").get(name)):
        return point.load()
    raise AttributeError(f"module 'tuner.runtime' has no attribute {name!r}")
