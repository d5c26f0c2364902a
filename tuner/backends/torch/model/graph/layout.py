"""Memory layout of modules and tensors, and modules prepared for inference."""

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

_MAPS = 4  # dimensions of maps [n, C, H, W], and of convolutions' weights


def fast(part: fx.GraphModule) -> nn.Module:
    """Return an inference copy: norms folded into convolutions, channels last."""
    folded = copy.deepcopy(part).eval()
    modules = dict(folded.named_modules())
    for node in list(folded.graph.nodes):
        before = node.args[0] if node.args else None
        if node.op != "call_module" or not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        norm, convolution = modules[str(node.target)], modules[str(before.target)]
        is_pair = isinstance(norm, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d)
        if is_pair and norm.track_running_stats and len(before.users) == 1:
            fused = fuse_conv_bn_eval(convolution, norm)
            folded.set_submodule(str(before.target), fused)
            node.replace_all_uses_with(before)
            folded.graph.erase_node(node)
    folded.recompile()
    return channels_last(folded)


def channels_last(module: nn.Module) -> nn.Module:
    """Put a module's four-dimensional weights in the layout that convolutions are fastest in."""

    def changed(value: torch.Tensor) -> torch.Tensor:
        return value.to(memory_format=torch.channels_last) if value.ndim == _MAPS else value

    # Module.to(memory_format=...) refuses a module with weights or buffers of five dimensions
    module._apply(changed)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch leaves it untyped
    return module


def spatial(value: torch.Tensor) -> torch.Tensor:
    """Return maps [n, C, H, W] with channels last in memory; anything else as it is."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == _MAPS else value


def guard_group_norms(traced: fx.GraphModule) -> None:
    """Let no group norm that is the first to train read maps channels last.

    PyTorch 2.13 ends the process in the backward pass of one whose input lies so and has no gradient.
    """
    for module in traced.modules():
        if isinstance(module, nn.GroupNorm):
            module.register_forward_pre_hook(lambda _, inputs: (_readable(inputs[0]),))
    for node in traced.graph.nodes:
        if node.target in {functional.group_norm, torch.group_norm}:
            node.target = _group_norm
    traced.recompile()


def _group_norm(value: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    return functional.group_norm(_readable(value), *args, **named)


def _readable(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous() if torch.is_grad_enabled() and not value.requires_grad else value
