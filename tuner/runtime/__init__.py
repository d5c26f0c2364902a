"""What runs a bundle on the device: the base package only, no tensor library."""

from tuner.runtime.bundle import Bundle, Exits
from tuner.runtime.orchestrator import Orchestrator, Policy, World
from tuner.runtime.personaliser import Personaliser, Prediction
from tuner.runtime.ring import Ring
from tuner.runtime.rounds import Training, Trains

__all__ = [
    "Bundle",
    "Exits",
    "Orchestrator",
    "Personaliser",
    "Policy",
    "Prediction",
    "Ring",
    "Training",
    "Trains",
    "World",
]
