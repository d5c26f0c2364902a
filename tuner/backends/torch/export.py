"""Write the personalised model as ONNX, and check it against PyTorch on the validation samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tuner.backends.base import Lowering
from tuner.backends.scores import accuracy, macro_auc
from tuner.backends.torch.evolving import Evolving
from tuner.backends.torch.model import Loaded
from tuner.backends.torch.prefix import spatial, write_onnx
from tuner.backends.torch.training import Logits
from tuner.errors import BundleError
from tuner.plan import TrialPlan
from tuner.runtime.session import Session
from tuner.task import Samples, Task, normalise

TOLERANCE = 1e-3
CHECK_BATCH = 32


def export(
    task: Task, loaded: Loaded, plan: TrialPlan, weights: Path, folder: Path, lowerings: Mapping[str, Lowering]
) -> dict[str, Any]:
    """Write ``model.onnx`` and ``weights.safetensors``; see `tuner.backends.base.Backend.export`.

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
    whole = nn.Sequential(loaded.prefix(plan.split), tail) if plan.split else tail
    whole.eval()
    sample = torch.from_numpy(normalise(task.local.val.load(0)[None], task.input))
    path = folder / "model.onnx"
    try:
        write_onnx(whole, torch.cat([sample, sample]), path, ["logits"])
    except Exception as error:  # the exporter raises many kinds
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BundleError(f"the model cannot be written as ONNX ({reason}): pick another model or operator") from error
    state = {name: value.contiguous() for name, value in loaded.model.state_dict().items()}
    save_file(state, folder / "weights.safetensors")
    widths = {kind: one.widths for kind, one in evolved.items()}
    return _checked(task, whole, path) | ({"final_widths": widths} if widths else {})


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
            ours = whole(spatial(torch.from_numpy(batch))).numpy()
        worst = float(np.maximum(worst, np.abs(ours - theirs).max()))
        parts.append(theirs)
    return np.concatenate(parts), worst
