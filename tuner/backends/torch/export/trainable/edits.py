"""What edits of a tail are in an exported training step: layers inside modules of theirs, and adapters."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList

from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.traced import Step, graph_of, port_of
from tuner.errors import BundleError
from tuner.ort.layout import Port
from tuner.runtime.train.adapters import ORIGINAL, fused_name
from tuner.runtime.train.files import ADAPTERS, MERGE


def named_as(given: nn.Module, tail: nn.Module, step: Step) -> Step:
    """Return a step whose weights have the names of the given layers.

    It was traced from `tail`: the same layers, where edits have put them inside modules of theirs.

    Raises:
        BundleError: The tail has a weight or a buffer that the given layers do not have.
    """
    names = _names(given, tail)

    def named(name: str) -> str:
        if name not in names:
            raise BundleError(
                f"--trainable can only write the model's own weights, but an edit of the tail added {name!r}: "
                "export without --trainable"
            )
        return names[name]

    def renamed(port: Port) -> str:
        if port.kind == "state":
            state, _, name = port.name.partition(".")
            return f"{state}.{named(name)}"
        return named(port.name) if port.kind in {"parameter", "buffer"} else port.name

    own = {port.name: renamed(port) for port in step.inputs}
    new = {after: f"next.{own[before]}" for after, before in step.updates.items()}
    return replace(
        step,
        inputs=tuple(replace(port, name=own[port.name]) for port in step.inputs),
        outputs=tuple(replace(port, name=new.get(port.name, port.name)) for port in step.outputs),
        updates={new[after]: own[before] for after, before in step.updates.items()},
    )


def _names(given: nn.Module, tail: nn.Module) -> dict[str, str]:
    """Return the given layers' names of a tail's weights and buffers, by the tail's."""
    places = {module: name for name, module in given.named_modules()}
    return {
        _joined(name, own): _joined(places[module], own)
        for name, module in tail.named_modules()
        if module in places
        for own, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    }


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def write_adapters(tail: nn.Module, folder: Path) -> bool:
    """Write what an edited tail's parametrisations begin with and how they are merged; return whether there are any.

    The edits are made, and nothing has trained yet; `tuner.runtime.train.adapters` reads the files.
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
