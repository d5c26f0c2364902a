"""The tables and claims of `benchmarks.persephonee` about its users."""

from itertools import pairwise
from statistics import median

import numpy as np

from benchmarks.persephonee_exits import ARMS, Figures
from benchmarks.report import Claim, Row, interval, ratio
from benchmarks.setup import spread
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.calibration import GRID
from tuner.runtime.train.exit_calibration import ExitCosts

ORDER_SLACK = 0.02
TOLERANCE = 0.01


def accuracy_rows(plan: TrialPlan, figures: list[Figures], costs: ExitCosts) -> list[Row]:
    """Return the mean over users of every exit's accuracy, and of what the calibrated policy gives."""
    names = [plan.model.blocks[one.block - 1].name for one in plan.heads.exits]
    rows: list[Row] = []
    for arm in figures[0].exits:
        exits = np.mean([one.exits[arm] for one in figures], axis=0)
        policy = np.mean([one.policy[arm] for one in figures], axis=0)
        rows.append(
            {
                "exits": arm,
                **{f"after {name}": float(value) for name, value in zip(names, exits, strict=False)},
                "final head": float(exits[-1]),
                "calibrated": float(policy[0]),
                "ms": 1e3 * float(policy[1]),
                "times faster": costs.seconds.reached[-1] / float(policy[1]),
                "share of FLOPs": float(policy[2]),
            }
        )
    return rows


def threshold_rows(figures: list[Figures]) -> list[Row]:
    """Return accuracy against mean latency by threshold, the mean over users."""
    rows: list[Row] = []
    for at, threshold in list(enumerate(GRID))[::2]:
        row: dict[str, object] = {"threshold": threshold}
        for arm in figures[0].swept:
            mean = np.mean([one.swept[arm][at] for one in figures], axis=0)
            row |= {f"{arm}: accuracy": float(mean[0]), f"{arm}: ms": 1e3 * float(mean[1])}
        rows.append(row)
    return rows


def claims_of(figures: list[Figures], costs: ExitCosts, seconds: dict[str, list[float]]) -> list[Claim]:
    """Compare latency, accuracy and training time with their bounds."""
    claims = [_ordered(figures)]
    for arm, bound, goal in (("with labels", 1.5, "3.2×"), ("self-distilled", 1.3, "2.2×")):
        drop, half = interval([one.exits[arm][-1] - one.policy[arm][0] for one in figures])
        faster = costs.seconds.reached[-1] / float(np.mean([one.policy[arm][1] for one in figures]))
        met = drop + half <= TOLERANCE and faster >= bound
        deepest = spread([one.exits[arm][-2] for one in figures])
        whole = spread([one.exits[arm][-1] for one in figures])
        why = "" if met else f"the last side exit reaches {deepest}, the final head {whole}: so few images teach it"
        said = f"{faster:.2f}×, drop {100 * drop:.1f} ± {100 * half:.1f} points (95 %, {len(figures)} users)"
        claim = f"exits {arm}: mean latency ≥ {bound}× lower, accuracy drop ≤ 1 point"
        claims.append(Claim(claim, f"PersEPhonEE: {goal}", said, "quality", met, why))
    for name, bound in (("exits, stored features", 10.0), ("exits, no store", 2.0)):
        times = median(seconds["whole model"]) / median(seconds[name])
        said = ratio(seconds, "whole model", name)
        why = "" if times >= bound else "the heads' own forward and backward pass take what is left"
        claims.append(Claim(f"a training step of {name} is ≥ {bound:g}× faster than of the whole model",
                            "PersEPhonEE: 2× to 22.7×", said, "ratio", times >= bound, why))  # fmt: skip
    return claims


def _ordered(figures: list[Figures]) -> Claim:
    """Compare the arms on the first three exits, with two points of slack, at the lower end of each interval."""
    arms = ("before", *ARMS)
    exits = {arm: np.array([one.exits[arm][:3] for one in figures]) for arm in arms}
    gains = {pair: [interval(gain) for gain in (exits[pair[1]] - exits[pair[0]]).T] for pair in pairwise(arms)}
    steps = [min(middle - half for middle, half in own) for own in gains.values()]
    said = f"smallest gain of an exit: at least {steps[0]:+.3f} by distillation, {steps[1]:+.3f} more by labels"
    claim = "each of the first three exits: with labels ≥ self-distilled ≥ before, 2 points of slack"
    return Claim(
        claim, "PersEPhonEE: labels give 15.9 points at its last side exit", said, "quality", min(steps) >= -ORDER_SLACK
    )
