"""Tensors of other shapes in the place of a network's own."""

from collections.abc import Mapping

import torch
from torch import nn

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def resize(network: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Give every tensor of a network the shape it has in a state dictionary; names it does not have are ignored.

    Tensors of another shape become zeros, the others stay: load the state next.
    """
    own = network.state_dict()
    other = {name: value for name, value in state.items() if name in own and own[name].shape != value.shape}
    install(network, {name: torch.zeros_like(value) for name, value in other.items()})


def install(
    network: nn.Module, tensors: Mapping[str, torch.Tensor], optimiser: torch.optim.Optimizer | None = None
) -> None:
    """Put tensors of other shapes in the place of a network's own, by name.

    The state of an optimiser that is given keeps its leading block.
    """
    for name, value in tensors.items():
        path, _, leaf = name.rpartition(".")
        module = network.get_submodule(path)
        old = module._parameters.get(leaf)  # noqa: SLF001 - where torch itself keeps them
        if old is None:
            module._buffers[leaf] = value  # noqa: SLF001 - the same
        else:
            layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format  # noqa: PLR2004 - maps
            # a copy, as `contiguous` leaves the strides of one-channel maps, by which kernels are chosen
            new = nn.Parameter(value.clone(memory_format=layout), requires_grad=old.requires_grad)
            module._parameters[leaf] = new  # noqa: SLF001 - the same
            if optimiser is not None:
                _hand_over(optimiser, old, new)
        _recount(module)


def _hand_over(optimiser: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter) -> None:
    """Let an optimiser update a new parameter instead of an old one."""
    for group in optimiser.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    state = optimiser.state.pop(old, None)
    if state is not None:
        optimiser.state[new] = {
            name: _leading(value, old, new) if isinstance(value, torch.Tensor) and value.shape == old.shape else value
            for name, value in state.items()
        }


def _leading(value: torch.Tensor, old: nn.Parameter, new: nn.Parameter) -> torch.Tensor:
    """Return zeros in the new parameter's shape with the leading block that both shapes share."""
    block = tuple(slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True))
    resized = torch.zeros_like(new, requires_grad=False)
    resized[block] = value[block]
    return resized


def _recount(module: nn.Module) -> None:
    """Set a module's own counts of channels or features from its weight."""
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, CONVOLUTIONS):
        module.out_channels = module.weight.shape[0]
        if module.groups > 1:
            module.groups = module.out_channels
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, BATCH_NORMS) and module.weight is not None:
        module.num_features = len(module.weight)
