"""The contracts of strategies, loss terms and backends as tests; a third party's whole test is a subclass.

    class TestLastLayer(StrategyContract):
        strategy = LastLayer()

pytest collects the checks from the subclass. This package needs pytest; nothing else in `tuner` imports it.
"""

from tuner.plan.example import example_model, example_task
from tuner.testing.backend import BackendContract
from tuner.testing.loss import LossContract
from tuner.testing.strategy import StrategyContract

__all__ = ["BackendContract", "LossContract", "StrategyContract", "example_model", "example_task"]
