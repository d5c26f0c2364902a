"""The PyTorch backend. This module loads no tensor library: its methods do, in a child process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tuner.backends.base import Backend, Filling, Report, silent
from tuner.plan import ModelInfo, TrialPlan
from tuner.planner.cost import Rates
from tuner.planner.step import StepPlan
from tuner.results.records import Outcome
from tuner.store.store import Store
from tuner.task import Task

if TYPE_CHECKING:
    from tuner.backends.base import Lowering


class TorchBackend(Backend):
    """Trains with PyTorch on the processor."""

    name = "torch"
    preload: ClassVar[Sequence[str]] = (
        "torch",
        "torch._dynamo",  # any optimiser imports it, for 1.8 s: once here instead of in every child
        "torch.fx.experimental.symbolic_shapes",  # likewise, by shape propagation
        "torch.utils.flop_counter",
        "tuner.backends.torch.training",
        "tuner.backends.torch.planned_loop",
        "tuner.backends.torch.measure",
    )

    def warm(self, task: Task) -> None:
        """Load and trace the model and hash the samples that every trial needs.

        On one thread: a pool of threads would not survive the fork.
        """
        import torch

        from tuner.backends.torch.model import keep

        torch.set_num_threads(1)
        keep(task)
        known = [task.global_.val] if task.global_ is not None else []
        for samples in (task.local.train, task.local.val, *known):
            for index in range(len(samples)):
                samples.sample_id(index)  # which reads the file; the samples keep it

    def describe(self, task: Task) -> ModelInfo:
        """Trace the model and find its blocks."""
        from tuner.backends.torch.model import load

        return load(task).info

    def measure(self, task: Task, threads: int) -> Rates:
        """Time every block of the model."""
        from tuner.backends.torch.measure import measure
        from tuner.backends.torch.model import load

        return measure(task, load(task), threads)

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why PyTorch cannot carry the plan out, or None."""
        known = self._lowerings()
        for edit in plan.shape:
            if edit.kind not in known:
                return f"no plugin realises tail edit {edit.kind!r} on torch"
        if plan.recipe.micro_batches > 1 and (plan.shape or not plan.recipe.freeze_bn):
            what = f"tail edit {plan.shape[0].kind!r}" if plan.shape else "recipe.freeze_bn = false"
            return f"a batch norm that trains needs whole batches: with {what}, recipe.micro_batches is 1"
        if plan.heads.exits and plan.shape:
            return "exits and edits of the tail are not trained together"
        if not plan.task.labelled and plan.heads.mode != "exits-only":
            return "the local samples have no labels, and only exits learn without them: exits.mode = 'exits-only'"
        return None

    def plan_step(self, task: Task, plan: TrialPlan) -> StepPlan | None:
        """Trace and plan a step, or, of a tail that changes while it trains, count the one it starts with.

        None where the step cannot be traced.
        """
        import torch

        from tuner.backends.torch.evolving import first_step
        from tuner.backends.torch.model import load
        from tuner.backends.torch.planned_loop import planned_step
        from tuner.backends.torch.step import StepError
        from tuner.backends.torch.training import edited

        torch.set_num_threads(plan.runtime.threads)
        tail = load(task, plan.model).tail(plan.split)
        if plan.shape:
            return first_step(edited(tail, plan, self._lowerings()), plan)
        try:
            return planned_step(tail, plan, task.loss)
        except StepError:
            return None

    def untouched(
        self, task: Task, model: ModelInfo, store: Store, threads: int, report: Report = silent
    ) -> dict[str, float]:
        """Score the given model."""
        import torch

        from tuner.backends.torch.model import load
        from tuner.backends.torch.untouched import untouched

        torch.set_num_threads(threads)
        return untouched(task, load(task, model), store, report)

    def missing(self, task: Task, plans: Sequence[TrialPlan], store: Store) -> int:
        """Return how many samples the store lacks."""
        from tuner.backends.torch.features import Access, missing
        from tuner.backends.torch.model import load

        access = Access(task, load(task, plans[0].model), store, plans[0].runtime.threads, silent)
        return missing(access, plans)

    def fill(self, task: Task, plans: Sequence[TrialPlan], store: Store, report: Report = silent) -> Filling:
        """Run the prefix on what the plans need and the store lacks."""
        import torch

        from tuner.backends.torch.features import Access, fill
        from tuner.backends.torch.model import load

        threads = plans[0].runtime.threads
        torch.set_num_threads(threads)
        return fill(Access(task, load(task, plans[0].model), store, threads, report), plans)

    def train(
        self, task: Task, plan: TrialPlan, seed: int, store: Store, weights: Path, report: Report = silent
    ) -> Outcome:
        """Train the tail."""
        from tuner.backends.torch.model import load
        from tuner.backends.torch.planned_loop import engine

        if plan.heads.exits:
            from tuner.backends.torch.exits import run
        else:
            from tuner.backends.torch.training import run

        return run(task, load(task, plan.model), plan, seed, store, weights, report, self._lowerings(), engine)

    def export(self, task: Task, plan: TrialPlan, weights: Path, folder: Path) -> dict[str, Any]:
        """Write the personalised model."""
        return self._export(task, plan, weights, folder, trainable=False)

    def export_trainable(self, task: Task, plan: TrialPlan, weights: Path, folder: Path) -> dict[str, Any]:
        """Write the personalised model, its training step and what is mixed in when it trains again."""
        return self._export(task, plan, weights, folder, trainable=True)

    def _export(self, task: Task, plan: TrialPlan, weights: Path, folder: Path, *, trainable: bool) -> dict[str, Any]:
        from tuner.backends.torch.model import load

        if plan.heads.exits:
            from tuner.backends.torch.segments import export
        else:
            from tuner.backends.torch.export import export

        loaded = load(task, plan.model)
        return export(task, loaded, plan, weights, folder, self._lowerings(), trainable=trainable)

    def _lowerings(self) -> "dict[str, Lowering]":
        """Return how edits are made to a torch tail, which all backends that begin with one share."""
        from tuner.host import Host

        return Host().lowerings("torch")
