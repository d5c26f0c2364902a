"""The epochs of a trial, and what ends them."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.backends.base import Report
from tuner.backends.torch.checkpoint import since_best
from tuner.plan import RecipePlan, TrialPlan

if TYPE_CHECKING:
    from tuner.backends.torch.training import Steps


def all_epochs(
    loop: "Steps",
    plan: TrialPlan,
    report: Report,
    epochs: list[dict[str, float]],
    spent: float,
    judge: Callable[[], float],
    left: Callable[[], int | None],
    keep: Callable[[float], None],
) -> tuple[float, str]:
    """Train the epochs that are left, and log each; return the training seconds, and what ended them early.

    Args:
        loop: Runs the steps.
        plan: The recipe.
        report: Told of progress.
        epochs: The log so far, which grows.
        spent: Training seconds so far.
        judge: Scores the tail where patience wants it.
        left: Bytes that the tail may grow by.
        keep: Called between epochs with the seconds so far.
    """
    for epoch in range(len(epochs), plan.recipe.epochs):
        started = time.perf_counter()
        loss, halted = loop.epoch(epoch, report)
        seconds = time.perf_counter() - started
        spent += seconds
        if halted:
            return spent, f"told to stop in epoch {epoch + 1}"
        entry = {"epoch": epoch + 1.0, "loss": loss, "seconds": seconds}
        epochs.append(entry)
        if plan.recipe.patience:
            entry["local_accuracy"] = judge()
        halted = report({"epoch": epoch + 1, "epochs": plan.recipe.epochs, **entry})
        if epoch + 1 == plan.recipe.epochs:  # what grew after the last epoch would never train
            break
        stopped = why_stop(plan.recipe, epoch + 1, since_best(epochs), halted=halted)
        if stopped:
            return spent, stopped
        entry |= loop.evolve(epoch + 1, left())
        spent += entry.get("evolve_seconds", 0.0)
        keep(spent)
    return spent, ""


def why_stop(recipe: RecipePlan, epoch: int, since: int, *, halted: bool) -> str:
    """Return why training ends after an epoch that is not the last; empty where it goes on."""
    if recipe.patience and since >= recipe.patience:
        return f"no better local accuracy for {since} epochs, after epoch {epoch}"
    return f"told to stop after epoch {epoch}" if halted else ""
