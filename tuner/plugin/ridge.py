"""What plugins solve heads with: ridge regression from sums, with exact scores of samples left out (`tuner.ridge`)."""

from tuner.ridge.choice import PENALTIES, Spectrum, chosen
from tuner.ridge.solve import LinearHead, left_out
from tuner.ridge.solver import HeadSolver, SolverSums
from tuner.ridge.sums import MOST_FEATURES, Sums, coded, step_of
from tuner.ridge.union import Domain, UnionSettings, both_rows, gate_head, regression_head, union_head

__all__ = [
    "MOST_FEATURES",
    "PENALTIES",
    "Domain",
    "HeadSolver",
    "LinearHead",
    "SolverSums",
    "Spectrum",
    "Sums",
    "UnionSettings",
    "both_rows",
    "chosen",
    "coded",
    "gate_head",
    "left_out",
    "regression_head",
    "step_of",
    "union_head",
]
