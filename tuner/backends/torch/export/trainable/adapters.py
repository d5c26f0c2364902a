"""Write the adapters of a tail's training step; `tuner.runtime.train.adapters` reads them."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList

from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.traced import Step, graph_of, port_of
from tuner.errors import BundleError
from tuner.ort.port import Port
from tuner.runtime.train.adapters import ORIGINAL, fused_name
from tuner.runtime.train.files import ADAPTERS, MERGE


def write_adapters(tail: nn.Module, folder: Path) -> bool:
    """Write what an edited tail's parametrisations begin with and how they are merged; return whether there are any.

    Args:
        tail: With its edits made, before any training.
        folder: The bundle's.

    Raises:
        BundleError: A parametrisation keeps its weight in several parts.
        StepError: One cannot be traced, or has no ONNX form.
    """
    lists = {name: one for name, one in tail.named_modules() if isinstance(one, ParametrizationList)}
    state = {f"{name}.{key}": value for name, one in lists.items() for key, value in one.state_dict().items()}
    originals = {fused_name(name) for name in state if name.endswith(ORIGINAL)}
    if not lists:
        return False
    if originals != set(map(fused_name, state)):
        raise BundleError(
            "--trainable can only write parametrisations of one original weight each, but one has several: "
            "export without --trainable"
        )
    initial = {name: value.detach().contiguous() for name, value in state.items() if not name.endswith(ORIGINAL)}
    save_file(initial, folder / ADAPTERS)
    inputs = tuple(port_of(name, "parameter", value) for name, value in state.items())

    def merge(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = {port.name: value for port, value in zip(inputs, values, strict=True)}
        merged = []
        with torch.no_grad():
            for name, parametrizations in lists.items():
                value = named[f"{name}{ORIGINAL}"]
                for number, one in enumerate(parametrizations):
                    prefix = f"{name}.{number}."
                    own = {key.removeprefix(prefix): named[key] for key in named if key.startswith(prefix)}
                    value = functional_call(one, own, (value,))
                merged.append(value)
        return tuple(merged)

    outputs = tuple(
        Port(fused_name(f"{name}{ORIGINAL}"), "parameter", tuple(one.original.shape), "float32")
        for name, one in lists.items()
    )
    write(Step(graph_of(merge, inputs), inputs, outputs, {}), folder / MERGE)
    return True
