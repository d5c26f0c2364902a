"""A model as a function of one tensor that gives one tensor, whatever its own code takes and gives."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from tuner.backends.torch.model.graph.places import raised_in
from tuner.errors import TaskError, first_line
from tuner.task import ModelSpec

#: Outputs by this name are the logits.
LOGITS = "logits"
_ROWS = 2  # dimensions of [n, classes]


def one_to_one(model: nn.Module, spec: ModelSpec, sample: torch.Tensor) -> nn.Module:
    """Let a model take one tensor and give one, [n, classes]; its modules and their names stay.

    It is in evaluation mode, and changed where it takes or gives more than one; `sample` is float32 [1, ...].

    Raises:
        TaskError: It does not take the sample, or gives no output that fits.
    """
    flat, output = _output(model, spec, sample)
    pick = _choice(output, spec)
    takes_more = len(inspect.signature(model.forward).parameters) > 1
    as_it_is = pick is None and not flat
    if as_it_is and (isinstance(model, torch.jit.ScriptModule) or not (takes_more or spec.input)):
        return model
    if isinstance(model, torch.jit.ScriptModule):
        raise TaskError(
            f"{spec.factory}: a TorchScript module must take samples of shape {list(sample.shape[1:])} and return one "
            "tensor [n, classes]: give its source"
        )
    given, name = type(model), spec.input
    own = given.forward

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x[:, 0] if flat else x
        outputs = own(self, x) if name is None else own(self, **{name: x})
        result: torch.Tensor = outputs if pick is None else pick(outputs)
        return result

    # A class of the same name, not a module around it: weights keep their names, and the hash of the model its value.
    model.__class__ = type(
        given.__name__,
        (given,),
        {"forward": forward, "__module__": given.__module__, "__qualname__": given.__qualname__},
    )
    return model


def _output(model: nn.Module, spec: ModelSpec, sample: torch.Tensor) -> tuple[bool, Any]:
    """Return whether a model takes samples without their axis of one channel, and what it gives."""
    if spec.input is not None and spec.input not in (names := list(inspect.signature(model.forward).parameters)):
        raise TaskError(f"model.input: {spec.factory} takes no {spec.input!r}: it takes {', '.join(names)}")

    def call(value: torch.Tensor) -> Any:
        with torch.inference_mode():
            return model(value) if spec.input is None else model(**{spec.input: value})

    try:
        return False, call(sample)
    except Exception as error:
        if sample.ndim > _ROWS and sample.shape[1] == 1:
            with suppress(Exception):
                return True, call(sample[:, 0])
        raise TaskError(
            f"the model does not take inputs of shape {list(sample.shape)}: {first_line(error)}{raised_in(error)}; "
            f"{_way_out(model, sample)}"
        ) from error


def _way_out(model: nn.Module, sample: torch.Tensor) -> str:
    """Say what a sample must have where a model does not take it: as many channels, or the right size."""
    key, noun = ("in_features", "numbers") if sample.ndim == _ROWS else ("in_channels", "channels")
    first = next((number for layer in model.modules() if isinstance(number := getattr(layer, key, None), int)), None)
    if first is not None and first != (held := sample.shape[1]):
        return f"its first layer takes {first} {noun}, the samples have {held}: give samples or a model of as many"
    key = {3: "length (input.window)", 4: "size (input.size)"}.get(sample.ndim, "shape")
    return f"give samples of the {key} that it was made for, or another model"


def _choice(output: Any, spec: ModelSpec) -> Callable[[Any], Any] | None:
    """Return what takes the logits out of a model's output; None where it is they."""
    if isinstance(output, torch.Tensor) and spec.output is None:
        if output.ndim != _ROWS:
            raise TaskError(
                f"the model must return one tensor [n, classes], but {spec.factory} returns {list(output.shape)}"
            )
        return None
    parts = _parts(output)
    fitting = [name for name, part in parts.items() if isinstance(part, torch.Tensor) and part.ndim == _ROWS]
    listed = ", ".join(f"{name} {_shape(part)}" for name, part in parts.items()) or type(output).__name__
    wanted = spec.output
    if wanted is None and (LOGITS in fitting or isinstance(output, tuple | list)):
        wanted = LOGITS if LOGITS in fitting else next(iter(fitting), None)
    if wanted is None and len(fitting) == 1:
        wanted = fitting[0]
    if wanted is None or wanted not in fitting:
        which = f"{spec.output!r} is none" if spec.output else "several are" if fitting else "none is"
        way_out = f'give model.output = "{fitting[0]}"' if fitting else "give another model"
        raise TaskError(
            f"the model must return logits [n, classes], but of what {spec.factory} returns ({listed}) {which}: "
            f"{way_out}"
        )
    if isinstance(output, Mapping) or not wanted.isdecimal():
        return (lambda value: value[wanted]) if isinstance(output, Mapping) else (lambda value: getattr(value, wanted))
    return lambda value: value[int(wanted)]


def _parts(output: Any) -> dict[str, Any]:
    """Return what an output holds, by name or by number."""
    if isinstance(output, Mapping):
        return {str(name): value for name, value in output.items()}
    if isinstance(output, tuple | list):
        return {str(number): value for number, value in enumerate(output)}
    return dict(getattr(output, "__dict__", {}))


def _shape(part: Any) -> str:
    return str(list(part.shape)) if isinstance(part, torch.Tensor) else f"a {type(part).__name__}"
