"""Write the personalised model as ONNX, and check it against PyTorch on the validation samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import fx, nn

from tuner.backends.base import Lowering
from tuner.backends.scores import accuracy, macro_auc
from tuner.backends.torch.evolving import Evolving
from tuner.backends.torch.model import Loaded
from tuner.backends.torch.prefix import fast, spatial, write_onnx
from tuner.backends.torch.trainable import refuse_untrainable, write_trainable
from tuner.backends.torch.training import Logits
from tuner.errors import BundleError
from tuner.plan import TrialPlan
from tuner.runtime.session import FEATURES, LOGITS, Session
from tuner.task import Samples, Task, normalise

TOLERANCE = 1e-3
CHECK_BATCH = 32


def export(
    task: Task,
    loaded: Loaded,
    plan: TrialPlan,
    weights: Path,
    folder: Path,
    lowerings: Mapping[str, Lowering],
    *,
    trainable: bool = False,
) -> dict[str, Any]:
    """Write ``model.onnx`` and ``weights.safetensors``; see `tuner.backends.base.Backend.export`.

    With `trainable`, the frozen blocks' output is an output too, and the tail's weights keep their names and shapes, so
    that those trained later can take their place; see `tuner.backends.torch.trainable`.

    Raises:
        BundleError: The model cannot be written as ONNX, or ONNX Runtime computes something else.
    """
    torch.set_num_threads(plan.runtime.threads)
    tail, evolved = loaded.tail(plan.split), {}
    for edit in plan.shape:
        tail = lowerings[edit.kind](tail, dict(edit.settings))
        if isinstance(tail, Evolving):
            evolved[edit.kind] = tail
    tail.load_state_dict(load_file(weights))
    state = {name: value.contiguous() for name, value in loaded.model.state_dict().items()}
    if trainable:
        refuse_untrainable(tail, state, plan)
    prefix = loaded.prefix(plan.split)
    if isinstance(prefix, fx.GraphModule) and trainable:
        prefix = fast(prefix)  # its norms fold here, as the exporter's optimiser would fold the tail's too
    whole = Parts(prefix if plan.split else nn.Identity(), tail, with_features=trainable and plan.split > 0)
    whole.eval()
    sample = torch.from_numpy(normalise(task.local.val.load(0)[None], task.input))
    path = folder / "model.onnx"
    try:
        outputs = [LOGITS, FEATURES] if whole.with_features else [LOGITS]
        write_onnx(whole, torch.cat([sample, sample]), path, outputs, optimize=not trainable)
    except Exception as error:  # the exporter raises many kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BundleError(f"the model cannot be written as ONNX ({reason}): pick another model or operator") from error
    save_file(state, folder / "weights.safetensors")
    widths = {kind: one.widths for kind, one in evolved.items()}
    found = _checked(task, whole, path) | ({"final_widths": widths} if widths else {})
    return found | ({"train": write_trainable(task, plan, tail, folder)} if trainable else {})


class Parts(nn.Module):
    """The frozen blocks and the tail, by names that tell their weights apart.

    Args:
        prefix: The frozen blocks.
        tail: The others.
        with_features: Whether what the frozen blocks give is a result too.
    """

    def __init__(self, prefix: nn.Module, tail: nn.Module, *, with_features: bool) -> None:
        super().__init__()
        self.prefix, self.tail, self.with_features = prefix, tail, with_features

    def forward(self, batch: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the logits, and the features where they are wanted."""
        features = self.prefix(batch)
        logits: torch.Tensor = self.tail(features)
        return (logits, features) if self.with_features else logits


def _checked(task: Task, whole: nn.Module, path: Path) -> dict[str, Any]:
    """Run validation and test samples through ONNX Runtime; compare logits with PyTorch's, and score."""
    session = Session(path)
    checks: dict[str, Any] = {}
    worst = 0.0
    splits = {"local_accuracy": task.local.val}
    if task.global_ is not None:
        splits["global_accuracy"] = task.global_.val
    if task.local.test is not None:
        splits["test_accuracy"] = task.local.test
    for name, samples in splits.items():
        theirs, difference = _compared(session, whole, task, samples)
        worst = float(np.maximum(worst, difference))  # keeps a NaN, unlike max
        labels = samples.labels
        checks[name] = macro_auc(theirs, labels) if task.loss == "multi-label" else accuracy(theirs, labels)
    if not worst <= TOLERANCE:
        raise BundleError(f"ONNX Runtime's logits differ by {worst:.2g} from PyTorch's, more than {TOLERANCE:g}")
    return {**checks, "largest_logit_difference": worst}


def _compared(session: Session, whole: nn.Module, task: Task, samples: Samples) -> tuple[Logits, float]:
    """Return ONNX Runtime's logits, and the largest difference from PyTorch's."""
    parts, worst = [], 0.0
    for begin in range(0, len(samples), CHECK_BATCH):
        raw = np.stack([samples.load(index) for index in range(begin, min(begin + CHECK_BATCH, len(samples)))])
        batch = normalise(raw, task.input)
        theirs = session.logits(batch)
        with torch.inference_mode():
            found = whole(spatial(torch.from_numpy(batch)))
        ours = (found[0] if isinstance(found, tuple) else found).numpy()
        worst = float(np.maximum(worst, np.abs(ours - theirs).max()))
        parts.append(theirs)
    return np.concatenate(parts), worst
