"""NNTrainer's Table 4 from its model files: every figure of ours, to the tenth of a KiB."""

from pathlib import Path

import pytest

from tuner.planner.memory.placement import PLANNERS, max_live
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.network.training import training_step

MODELS = Path(__file__).parents[3] / "examples" / "nntrainer"
#: KiB: planned by v1, first_fit and by_size, and the most that is alive.
FIGURES = {
    "linear": [49_397.0, 49_397.0, 49_394.5, 49_394.5],
    "conv2d": [65_856.3, 65_856.3, 65_856.3, 65_856.3],
    "lstm": [84_707.9, 84_708.7, 84_707.9, 84_707.9],
    "model_a_linear": [188_226.5, 188_226.5, 188_226.5, 188_226.5],
    "model_a_conv2d": [51_156.9, 51_156.9, 51_156.9, 51_156.9],
    "model_b_linear": [112_935.5, 112_935.5, 112_914.5, 112_914.5],
    "model_b_conv2d": [61_152.9, 61_152.6, 58_800.9, 58_800.9],
    "model_c_linear": [49_397.0, 49_397.0, 49_394.5, 49_394.5],
    "model_c_conv2d": [65_856.3, 65_856.3, 65_856.3, 65_856.3],
    "model_d": [118_776.0, 118_776.0, 118_776.0, 118_776.0],
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_case_is_planned_to_the_tenth_of_a_kib(name: str) -> None:
    tensors = training_step(read_ini(MODELS / f"{name}.ini")).tensors
    planned = [PLANNERS[planner](tensors).pool_bytes for planner in ("v1", "first_fit", "by_size")]
    figures = [round(nbytes / 1024, 1) for nbytes in (*planned, max_live(tensors))]
    assert figures == FIGURES[name]
