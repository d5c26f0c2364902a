"""Steps of several programs: one timeline, what lasts counted once."""

from tuner.planner.memory.placement import Tensor
from tuner.planner.memory.step import StepRun, in_sequence


def test_programs_in_a_row_share_what_lasts() -> None:
    adding = StepRun(
        (
            Tensor("w", 100, 0, 1, "weight"),
            Tensor("sum.w", 10, 0, 1, "state"),
            Tensor("code", 1, 0, 1, "library"),
            Tensor("a", 5, 0, 1, "saved"),
        ),
        ("forward", "backward"),
        7,
        3,
    )
    last = StepRun((*adding.tensors, Tensor("mean.w", 20, 0, 1, "state")), ("forward", "update"), 8)
    plan = in_sequence((adding, last))
    assert plan.steps == ("forward", "backward", "forward", "update")
    assert plan.flops == 3 * 7 + 8
    assert {tensor.name: (tensor.first, tensor.last) for tensor in plan.tensors} == {
        "sum.w": (0, 3),
        "mean.w": (0, 3),
        "code": (0, 3),
        "a (1)": (0, 1),
        "a": (2, 3),
    }
    assert plan.peak_bytes == 10 + 20 + 1 + 5
