"""NNTrainer's ten cases (arXiv 2206.04688, Table 4): the paper's ideal training memory beside what each planner plans.

The cases are the model files in ``examples/nntrainer``, batch 64. For some the paper gives only shapes of inputs and
outputs; their hidden widths are the only whole numbers that fit its figures. Two rules explain the column "ideal":

- R, for eight cases: the input, every distinct forward output, the derivative of the last one, the label, all weights,
  and the largest gradient. For the LSTM, the gates count twice: before and after their activation.
- V1, for two cases: the pool of the planner that NNTrainer shipped then.

Beside them: LeNet-5 and a small residual network, planned against giving every tensor memory of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.lib.places import EXAMPLES
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.planner.memory.placement import PLANNERS, Tensor, max_live
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.network.layers import Activation, Conv2d, Input, Operation
from tuner_nntrainer.network.network import Layer, LayerInput, Network, network
from tuner_nntrainer.network.training import training_step

MODELS = EXAMPLES / "nntrainer"
KIB = 1024
BATCH = 64
RATIO = 1.02
MASK_RATIO = 1.01
WANTED = 9


@dataclass(frozen=True, slots=True)
class Case:
    """One row of Table 4: the paper's ideal, in KiB rounded down, and the rule that gives it."""

    name: str
    file: str
    paper_kib: int
    rule: Literal["R", "V1"]


CASES = (
    Case("Linear", "linear.ini", 49_397, "V1"),
    Case("Conv2D", "conv2d.ini", 65_856, "R"),
    Case("LSTM", "lstm.ini", 84_731, "R"),
    Case("Model A (Linear)", "model_a_linear.ini", 188_250, "R"),
    Case("Model A (Conv2D)", "model_a_conv2d.ini", 51_157, "R"),
    Case("Model B (Linear)", "model_b_linear.ini", 112_935, "V1"),
    Case("Model B (Conv2D)", "model_b_conv2d.ini", 54_097, "R"),
    Case("Model C (Linear)", "model_c_linear.ini", 49_399, "R"),
    Case("Model C (Conv2D)", "model_c_conv2d.ini", 65_856, "R"),
    Case("Model D", "model_d.ini", 162_295, "R"),
)
BOUND_BREAKER = "Model B (Conv2D)"
NETWORKS = {"LeNet-5": "lenet5.ini", "small ResNet": "resnet.ini"}
FORWARD = {"input", "activation", "output", "saved", "scratch"}


@dataclass(frozen=True, slots=True)
class Planned:
    """A case as planned, in KiB.

    Attributes:
        case: Of the paper.
        rule_r_kib: What rule R gives.
        pools_kib: By planner.
        max_live_kib: The lower bound.
    """

    case: Case
    rule_r_kib: float
    pools_kib: Mapping[str, float]
    max_live_kib: float

    @property
    def explained_kib(self) -> float:
        """What the paper's rule gives."""
        return self.rule_r_kib if self.case.rule == "R" else self.pools_kib["v1"]

    @property
    def ratio(self) -> float:
        """Planned by size, over the paper's ideal."""
        return self.pools_kib["by_size"] / self.case.paper_kib

    @property
    def row(self) -> dict[str, object]:
        """A line of the table."""
        return {
            "case": self.case.name,
            "paper KiB": self.case.paper_kib,
            "rule": self.case.rule,
            "by the rule": f"{self.explained_kib:.1f}",
            **{name: f"{pool:.1f}" for name, pool in self.pools_kib.items()},
            "max_live": f"{self.max_live_kib:.1f}",
            "by_size / paper": round(self.ratio, 4),
        }


def main() -> None:
    """Plan, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    found = [planned(case) for case in CASES]
    masked = max_live(training_step(masked_model_b()).tensors) / KIB
    finish("nntrainer_table4", [*(one.row for one in found), *_networks()], claims(found, masked), asked.json)


def planned(case: Case) -> Planned:
    """Plan a case by every planner."""
    tensors = training_step(read_ini(MODELS / case.file)).tensors
    pools = {name: planner(tensors).pool_bytes / KIB for name, planner in PLANNERS.items()}
    return Planned(case, rule_r(tensors) / KIB, pools, max_live(tensors) / KIB)


def rule_r(tensors: tuple[Tensor, ...]) -> int:
    """Return the bytes by rule R."""

    def total(kinds: set[str]) -> int:
        return sum(one.nbytes for one in tensors if one.kind in kinds)

    label = total({"label"})  # the derivative of the last output is as large
    again = sum(one.nbytes for one in tensors if one.name.endswith("gates"))
    largest = max(one.nbytes for one in tensors if one.kind == "gradient")
    return total({*FORWARD, "weight"}) + 2 * label + again + largest


def masked_model_b() -> Network:
    """Return Model B (Conv2D) with a bit a value kept of the activation instead of its output."""
    conv = Conv2d(3, (3, 3), (2, 2), "same", bias=False)
    operations: tuple[Operation, ...] = (Input((3, 224, 224)), conv, Activation("relu", mask=True), conv)
    layers = [Layer(f"l{at}", one, (LayerInput(f"l{at - 1}"),) if at else ()) for at, one in enumerate(operations)]
    return network(layers, loss="mse", optimiser="sgd", batch_size=BATCH)


def claims(found: list[Planned], masked_kib: float) -> list[Claim]:
    """Hold the plans against the paper."""
    explained = [abs(one.explained_kib - one.case.paper_kib) < 1 for one in found]
    within = [one.case.name for one in found if one.ratio <= RATIO]
    worst = max(found, key=lambda one: one.ratio)
    tight = [math.isclose(one.pools_kib["by_size"], one.max_live_kib) for one in found]
    (breaker,) = [one for one in found if one.case.name == BOUND_BREAKER]
    return [
        Claim(
            "each ideal of Table 4 is given by rule R (8 cases) or by the V1 plan (2), to less than 1 KiB",
            "arXiv 2206.04688, Table 4",
            f"{sum(explained)} of {len(found)}",
            all(explained),
        ),
        Claim(
            f"by_size ≤ {RATIO} × the paper's ideal on {WANTED} of {len(found)} cases",
            "arXiv 2206.04688, Table 4",
            f"{len(within)} of {len(found)}; the largest is {worst.ratio:.3f} × ({worst.case.name})",
            len(within) >= WANTED,
            f"{BOUND_BREAKER}: the paper counts no derivative of the activation, which is alive beside its output; "
            f"no plan needs less than {breaker.max_live_kib:,.1f} KiB",
        ),
        Claim(
            "by_size reaches the lower bound, the most bytes alive in any step, on every case",
            "max_live",
            f"{sum(tight)} of {len(found)}",
            all(tight),
        ),
        Claim(
            f"{BOUND_BREAKER} with one bit a value kept of the relu ≤ {MASK_RATIO} × the paper's ideal",
            f"{breaker.case.paper_kib:,} KiB",
            f"{masked_kib:,.1f} KiB, {masked_kib / breaker.case.paper_kib:.3f} ×",
            masked_kib <= MASK_RATIO * breaker.case.paper_kib,
        ),
    ]


def _networks() -> list[Row]:
    rows: list[Row] = []
    for name, file in NETWORKS.items():
        model = read_ini(MODELS / file)
        tensors = training_step(model).tensors
        pools = {planner: place(tensors).pool_bytes / KIB for planner, place in PLANNERS.items()}
        rows.append(
            {
                "network": name,
                "batch": model.batch_size,
                **{f"{planner} KiB": f"{pool:.1f}" for planner, pool in pools.items()},
                "max_live": f"{max_live(tensors) / KIB:.1f}",
                "by_size / basic": round(pools["by_size"] / pools["basic"], 3),
            }
        )
    return rows


if __name__ == "__main__":
    main()
