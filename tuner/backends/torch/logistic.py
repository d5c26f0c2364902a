"""A linear head on features that stay as they are, by the task's loss: logistic regression; of numbers, ridge."""

import math

import numpy as np
import torch

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.backends.torch.task_loss import StepLoss
from tuner.machine.awake import CLOCK
from tuner.ridge.solve import LinearHead

#: Penalties that are tried, the strongest first, until the folds say that a weaker one is worse; then the last one
#: that was better. They are shares of the summed variance of the standardised features.
PENALTIES = tuple(10.0**power for power in range(0, -7, -1))
#: Directions with a smaller share of the largest variance are left out.
LEAST_VARIANCE = 1e-6
#: L-BFGS ends after so many steps, or where gradients, or what a step changes, are as small.
MOST_STEPS, SMALL_GRADIENT, SMALL_CHANGE = 60, 1e-4, 1e-6


def fit_linear(
    features: Floats, labels: Labels, outputs: int, loss: StepLoss, folds: RowNumbers, until: float = math.inf
) -> LinearHead:
    """Return the head with the least mean loss plus λ/2 ‖W‖² on standardised features; the bias is not penalised.

    λ is the one of `PENALTIES` with the least loss on the samples of folds that were left out.

    Args:
        features: float32 [n, features].
        labels: Of each sample, as the loss takes them.
        outputs: Rows of the head.
        loss: The task's.
        folds: Fold of each sample, int64 [n].
        until: Clock (`tuner.machine.awake.CLOCK`) from which no further penalty is tried.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread[spread <= LEAST_VARIANCE * spread.max(initial=0.0)] = math.inf  # it never changes
    turn, variances = _components(standard := torch.from_numpy((features - mean) / spread))
    scores, truth = standard @ turn, torch.from_numpy(np.ascontiguousarray(labels))
    is_held = torch.from_numpy(folds[:, None] == np.unique(folds))  # [n, folds]
    count, whole = is_held.shape[1], float(variances.sum())
    chosen, least = PENALTIES[len(PENALTIES) // 2], math.inf
    heads = torch.zeros(len(variances) + 1, count, outputs)
    for penalty in PENALTIES if count > 1 else ():
        heads = _fit(scores, truth, ~is_held, heads, penalty * whole, loss, variances)
        held_out = float(_loss(scores, truth, is_held, heads, loss))
        if held_out >= least:
            break
        chosen, least = penalty, held_out
        if CLOCK.now() >= until:
            break
    every = torch.ones(len(truth), 1, dtype=torch.bool)
    head = _fit(scores, truth, every, heads.mean(dim=1, keepdim=True), chosen * whole, loss, variances)[:, 0]
    weight = (turn @ head[:-1]).double().numpy().T / spread
    return LinearHead(weight, head[-1].double().numpy() - weight @ mean)


def _components(standard: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what turns [n, features] into its principal components, and the variance of each."""
    count, features = standard.shape
    wide = features > count
    variances, vectors = torch.linalg.eigh((standard @ standard.T if wide else standard.T @ standard) / count)
    kept = variances > LEAST_VARIANCE * variances[-1]
    variances, vectors = variances[kept], vectors[:, kept]
    return (standard.T @ vectors / (count * variances).sqrt() if wide else vectors), variances


def _loss(
    scores: torch.Tensor, truth: torch.Tensor, rows: torch.Tensor, heads: torch.Tensor, loss: StepLoss
) -> torch.Tensor:
    """Return the mean loss of several heads, [components + 1, heads, outputs], each on its rows, bool [n, heads]."""
    answers = (scores @ heads[:-1].flatten(1)).view(len(scores), *heads.shape[1:]) + heads[-1]
    return loss.mean(answers[rows], truth[rows.nonzero()[:, 0]])


def _fit(
    scores: torch.Tensor,
    truth: torch.Tensor,
    rows: torch.Tensor,
    start: torch.Tensor,
    penalty: float,
    loss: StepLoss,
    variances: torch.Tensor,
) -> torch.Tensor:
    """Return the best heads, each on its rows, all at once; each component is scaled by about its curvature."""
    scale = torch.cat([(variances / 4 + penalty).rsqrt(), torch.ones(1)])[:, None, None]
    scaled = (start / scale).requires_grad_()
    optimiser = torch.optim.LBFGS(
        [scaled],
        max_iter=MOST_STEPS,
        tolerance_grad=SMALL_GRADIENT,
        tolerance_change=SMALL_CHANGE,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        heads = scaled * scale
        value = _loss(scores, truth, rows, heads, loss) + penalty / 2 * heads[:-1].square().sum() / rows.shape[1]
        value.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]  # likewise
    return (scaled * scale).detach()
