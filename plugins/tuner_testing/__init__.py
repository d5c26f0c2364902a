"""The contracts of plugins as tests; a third party's whole test is a subclass.

    class TestLastLayer(PluginContract):
        plugin = tuner_last_layer

pytest collects the checks from the subclass; ``tuner plugins check`` runs them without one. The contracts need pytest;
``tuner plugins new`` does not, so each is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.plan.example import example_model, example_task
    from tuner_testing.backend import BackendContract
    from tuner_testing.loss import LossContract
    from tuner_testing.lowering import LoweringContract
    from tuner_testing.objective import MeasureContract, ObjectiveContract
    from tuner_testing.optimiser import OptimiserContract
    from tuner_testing.rules import PluginContract
    from tuner_testing.selector import BatchContract, DataContract
    from tuner_testing.solver import SolverContract
    from tuner_testing.strategy import StrategyContract

__all__ = [
    "BackendContract",
    "BatchContract",
    "DataContract",
    "LossContract",
    "LoweringContract",
    "MeasureContract",
    "ObjectiveContract",
    "OptimiserContract",
    "PluginContract",
    "SolverContract",
    "StrategyContract",
    "example_model",
    "example_task",
]
_HOMES = {"Batch": "selector", "Data": "selector", "Measure": "objective", "Plugin": "rules"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    subject = name.removesuffix("Contract")
    home = "tuner.plan.example" if subject == name else f"tuner_testing.{_HOMES.get(subject, subject.lower())}"
    return getattr(import_module(home), name)
