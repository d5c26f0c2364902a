"""A model in numbers: FLOPs, parameters and saved bytes of its blocks."""

import math

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.torch.model.graph.nodes import Chain
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.task import Task


def model_info(
    task: Task, model: nn.Module, chain: Chain | None, sample: torch.Tensor, note: str, fingerprint: str
) -> ModelInfo:
    """Measure a model's blocks; the whole model where it could not be cut, with a note why.

    `sample` is one input, float32 [1, ...].
    """
    blocks: tuple[BlockInfo, ...]
    if chain is None:
        flops, _ = counted(model, sample)
        count = sum(value.numel() for value in model.parameters())
        shape = tuple(sample.shape[1:])
        blocks = (BlockInfo("model", "input", shape, flops, count, saved_bytes(model, sample)),)
    else:
        blocks = tuple(_block_infos(chain, sample))
    return ModelInfo(
        task.model.name, fingerprint, len(task.labels), blocks, note, chain.traced_by if chain is not None else ""
    )


def _block_infos(chain: Chain, sample: torch.Tensor) -> list[BlockInfo]:
    infos, value = [], sample
    for index, block in enumerate(chain.blocks):
        end = chain.blocks[index + 1].begin if index + 1 < len(chain.blocks) else chain.blocks[-1].end
        part = chain.part(block.begin, end).eval()
        flops, result = counted(part, value)
        parameters = sum(parameter.numel() for parameter in part.parameters())
        shape = tuple(value.shape[1:])
        last = index > 0 and len(shape) > 1 and shape[-1] == chain.last_width(index) != shape[0]
        infos.append(BlockInfo(block.name, block.cut, shape, flops, parameters, saved_bytes(part, value), last))
        value = result
    return infos


def counted(module: nn.Module, value: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Return the FLOPs of a module's forward pass, and its result.

    Gradients are on: of a weight that is a module's argument, as of a weight norm, torch's tracker asks for them.
    """
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        result: torch.Tensor = module(value.clone())
    return counter.get_total_flops(), result.detach()


def saved_bytes(module: nn.Module, value: torch.Tensor) -> int:
    """Return the bytes autograd keeps for the backward pass, without the weights, for one sample."""
    weights = {parameter.data_ptr() for parameter in module.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.enable_grad():
        module(value.clone().requires_grad_())
    return math.ceil(sum(saved.values()) / value.shape[0])
