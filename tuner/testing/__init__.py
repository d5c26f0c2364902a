"""The contracts of plugins as tests; a third party's whole test is a subclass.

    class TestLastLayer(StrategyContract):
        strategy = LastLayer()

pytest collects the checks from the subclass. This package needs pytest; nothing else in `tuner` imports it.
"""

from tuner.plan.example import example_model, example_task
from tuner.testing.backend import BackendContract
from tuner.testing.data import DataContract
from tuner.testing.loss import LossContract
from tuner.testing.strategy import StrategyContract

__all__ = ["BackendContract", "DataContract", "LossContract", "StrategyContract", "example_model", "example_task"]
