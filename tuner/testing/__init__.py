"""The contracts of plugins as tests; a third party's whole test is a subclass.

    class TestLastLayer(PluginContract):
        plugin = tuner_last_layer

pytest collects the checks from the subclass; ``tuner plugins check`` runs them without one. This package needs pytest;
nothing else in `tuner` imports it.
"""

from tuner.plan.example import example_model, example_task
from tuner.testing.backend import BackendContract
from tuner.testing.loss import LossContract
from tuner.testing.lowering import LoweringContract
from tuner.testing.models.data import DataContract
from tuner.testing.objective import MeasureContract, ObjectiveContract
from tuner.testing.optimiser import OptimiserContract
from tuner.testing.rules import PluginContract
from tuner.testing.strategy import StrategyContract

__all__ = [
    "BackendContract",
    "DataContract",
    "LossContract",
    "LoweringContract",
    "MeasureContract",
    "ObjectiveContract",
    "OptimiserContract",
    "PluginContract",
    "StrategyContract",
    "example_model",
    "example_task",
]
