"""Names of an exported training step: the given model's, wherever edits have put its layers."""

from dataclasses import replace

from torch import nn

from tuner.backends.torch.step.traced import Step
from tuner.errors import BundleError
from tuner.ort.port import Port


def named_as(given: nn.Module, tail: nn.Module, step: Step) -> Step:
    """Return a step whose weights have the names of the given layers.

    Args:
        given: Blocks as the model has them.
        tail: What the step was traced from: the same layers, where edits have put them inside modules of theirs.
        step: Its step.

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
