"""Load a model, give it one head row per label, and describe it as a chain of blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import nn

from tuner.backends.torch.model.graph.blocks import model_info
from tuner.backends.torch.model.graph.calling import one_to_one
from tuner.backends.torch.model.graph.nodes import Chain, chain
from tuner.backends.torch.model.graph.tracing import RefusalError, refresh
from tuner.backends.torch.model.head import resize_heads, standardise_heads
from tuner.backends.torch.model.open.factory import build, with_weights
from tuner.backends.torch.model.open.fingerprint import model_hash
from tuner.backends.torch.model.open.outputs import check_repeatable, logits_of
from tuner.backends.torch.model.open.pretrain import pretrained
from tuner.backends.torch.model.published import library_errors
from tuner.distribution import SWITCH, offered
from tuner.errors import TaskError, first_line
from tuner.plan.info import ModelInfo, Sized
from tuner.task import ModelSpec, Task
from tuner.task.spec import MODEL_FILES

#: Samples on which a model is compared with itself.
_COMPARED = 8


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model ready to be personalised.

    Attributes:
        model: The model with the union head, in evaluation mode.
        chain: Its blocks; None where it cannot be traced.
        fingerprint: Hash of the graph, and of every weight and buffer before training.
        trusted_rows: Number of the first head rows that the given model brought along.
        task_fingerprint: Fingerprint of the task.
        measured: Measures the blocks; see `info`.
        drops_heads: Whether some weights have no part in the outputs: those of heads that only training would run.
    """

    model: nn.Module
    chain: Chain | None
    fingerprint: str
    trusted_rows: int
    task_fingerprint: str
    measured: Callable[[], ModelInfo]
    drops_heads: bool = False

    @cached_property
    def info(self) -> ModelInfo:
        """The blocks in numbers; measured when first asked for."""
        return self.measured()

    def with_info(self, info: ModelInfo) -> "OpenModel":
        """Return the same model, its blocks in the numbers that were measured before."""
        return replace(self, measured=lambda: info)

    def prefix(self, cut: int) -> nn.Module:
        """Return blocks ``[0, cut)``; shares the model's weights."""
        return self.chain.prefix(cut) if self.chain else nn.Identity()

    def parts(self) -> list[nn.Module]:
        """Return every block, in evaluation mode; shares the model's weights."""
        if self.chain is None:
            return [self.model]
        edges = [self.chain.split_position(cut) for cut in range(self.info.num_blocks + 1)]
        return [self.chain.part(begin, end).eval() for begin, end in pairwise(edges)]

    def tail(self, cut: int) -> nn.Module:
        """Return blocks ``[cut, num_blocks)``; shares the model's weights."""
        if self.chain is None or (cut == 0 and not self.drops_heads):
            return self.model
        return self.chain.tail(cut)


def load(task: Task) -> OpenModel:
    """Build the task's model with one head row per label, and find its blocks.

    Raises:
        TaskError: The model cannot be built, weights do not fit, or the head cannot be given the labels' rows.
        TrainingError: The pretraining's loss is no longer a number.
    """
    torch.manual_seed(0)  # a factory without weights starts from the same ones every time
    sample = torch.from_numpy(task.batch(task.local.train, [0]))
    notes: list[str] = []
    model, came_by = given_model(task, sample, notes.append)
    with torch.inference_mode():
        rows = int(model(sample).shape[1])
    task.targets.check_outputs(rows, task.labels, task.model.factory)
    if task.scale is not None and task.model.pretrain is None and not task.model.head:  # else its outputs are scaled
        some = torch.from_numpy(task.batch(task.local.train, range(min(len(task.local.train), _COMPARED))))
        standardise_heads(model.requires_grad_(), some, task.scale, task.model.factory)
    if task.model.pretrain is not None:
        pretrained(task, model)
    model.requires_grad_()  # what trains is the plan's to say, not the factory's
    wanted, new = task.head_rows, len(task.labels) - len(task.head_rows)
    if max(wanted, default=-1) >= rows:
        raise TaskError(
            f"the global classes take row {max(wanted)} of the head, counted from 0, but the model has {rows} outputs: "
            f"give each class its row in global.classes, or a model with {max(wanted) + 1} outputs"
        )
    if wanted != tuple(range(rows)) or new:
        resize_heads(model, sample, wanted, new, task.model)
    blocks = None
    try:
        blocks = chain(model, sample)
        blocks = replace(blocks, traced_by=f"{blocks.traced_by}{came_by}")
    except RefusalError as error:
        refresh(model)
        notes.append(f"the model cannot be traced ({error}): only whole-model training is offered")
    if blocks is not None and len(blocks.blocks) < 2:  # noqa: PLR2004 - one block is no chain
        notes.append("the model has no inner cut point: only whole-model training is offered")
        blocks = None
    fingerprint = model_hash(model, blocks.module if blocks else model)
    return OpenModel(
        model=model,
        chain=blocks,
        fingerprint=fingerprint,
        trusted_rows=len(task.head_rows),
        task_fingerprint=task.fingerprint(),
        measured=lambda: model_info(task, model, blocks, sample, "; ".join(notes), fingerprint),
        drops_heads=blocks is not None and _has_idle(model, blocks, sample),
    )


def sized(task: Task, model: OpenModel, size: int) -> Sized:
    """Return what a model is at another size of its input, or why it does not take that."""
    try:
        sample = torch.from_numpy(task.at(size).batch(task.at(size).local.train, [0]))
        with torch.inference_mode():
            given = model.model(sample)
            if model.chain is not None and not torch.allclose(model.chain.module(sample), given, rtol=1e-3, atol=1e-4):
                return Sized(size, refused=f"{size} px: its blocks compute something else than the model")
        return Sized(size, model_info(task, model.model, model.chain, sample, "", model.fingerprint).blocks)
    except Exception as error:  # noqa: BLE001 - a model may raise anything
        return Sized(size, refused=f"{size} px: {first_line(error)}")


def given_model(task: Task, sample: torch.Tensor, say: Callable[[str], object]) -> tuple[nn.Module, str]:
    """Return the model before it is given the labels' rows, and where it came from, if not by its factory."""
    spec, needs_head = task.model, bool(task.head_rows)
    if spec.is_file:
        model, came_by = _opener(spec)(task)
        model, came_by = with_weights(model, spec, say), f", of {came_by}"
    else:
        model, came_by = one_to_one(build(spec, sample, say, needs_head=needs_head), spec, sample), ""
    check_repeatable(model, sample, spec.factory)
    return logits_of(model, task, sample, say), came_by


def _opener(spec: ModelSpec) -> Callable[[Task], tuple[nn.Module, str]]:
    """Return what a plugin offers to open the task's model file; it says too what became of the file, for people."""
    ending, path = spec.source or ("", "")
    point = offered(MODEL_FILES).get(ending)
    if point is None:
        raise TaskError(
            f"model.weights: no installed plugin opens {path} as a model: see `tuner plugins`, and {SWITCH}, which "
            "switches plugins off"
        )
    with library_errors(f"model.weights: what opens {path} cannot be imported:", "update the plugin"):
        opener: Callable[[Task], tuple[nn.Module, str]] = point.load()
    return opener


def _has_idle(model: nn.Module, blocks: Chain, sample: torch.Tensor) -> bool:
    """Return whether the outputs do not depend on weights that the traced model is without."""
    kept = dict(blocks.module.named_parameters())
    left_out = [value for name, value in model.named_parameters() if name not in kept]
    if not left_out:
        return False
    with torch.enable_grad():
        gradients = torch.autograd.grad(model(sample).sum(), left_out, allow_unused=True)
    refresh(model)
    return all(gradient is None for gradient in gradients)
