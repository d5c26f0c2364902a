"""Sharpness-aware minimisation: AdamW by the gradients at a point uphill of the weights."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.plugin import OptimiserFactory, RecipePlan, hookimpl


def sam(parameters: Sequence[Any], recipe: RecipePlan) -> Any:
    """Return the optimiser, with a radius of 0.05."""
    import torch

    class Sam(torch.optim.AdamW):
        @torch.no_grad()
        def step(self, closure: Any) -> Any:
            loss = closure()
            weights = [own for group in self.param_groups for own in group["params"] if own.grad is not None]
            norm = torch.stack([own.grad.norm() for own in weights]).norm()
            before = [own.clone() for own in weights]
            for own in weights:
                own.add_(0.05 * own.grad / (norm + 1e-12))
            closure()  # of the same batch, at the point uphill
            for own, old in zip(weights, before, strict=True):
                own.copy_(old)
            super().step()
            return loss

    return Sam(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay)


@hookimpl
def tuner_optimisers(backend: str) -> Mapping[str, OptimiserFactory]:
    return {"sam": sam} if backend == "torch" else {}
