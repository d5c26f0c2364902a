"""Build a model: call its factory and load its weights."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from torch import nn

from tuner.backends.torch.model.head import resize_head
from tuner.backends.torch.model.resize import resize
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.model.weights import fit, read_weights
from tuner.errors import TaskError, nearest
from tuner.task import ModelSpec


def build(spec: ModelSpec) -> nn.Module:
    """Call the factory and load the weights.

    Raises:
        TaskError: A part cannot be used; the message says what would do.
    """
    model = _call_factory(spec)
    if not isinstance(model, nn.Module):
        raise TaskError(
            f"model.factory must return a torch module, but {spec.factory} returns a {type(model).__name__}: "
            "name another function"
        )
    if spec.head:
        resize_head(model, tuple(range(len(spec.head))), 0, spec.factory)
    if spec.weights is not None:
        state = read_weights(spec)
        if spec.head:  # a bundle's weights, whose shapes may differ from the factory's
            resize(model, state)
        fit(model, state, str(spec.weights))
    return model.eval()


def _call_factory(spec: ModelSpec) -> Any:
    where, _, name = spec.factory.rpartition(":")
    try:
        if where.endswith(".py"):
            location = importlib.util.spec_from_file_location(Path(where).stem, where)
            if location is None or location.loader is None:
                raise TaskError(f"model.factory: {where} cannot be imported: check the path")
            if "torchvision" in Path(where).read_text(encoding="utf-8", errors="replace"):
                torchvision()  # so that the user's own import of it works here too
            module = importlib.util.module_from_spec(location)
            location.loader.exec_module(module)
        else:
            if where.split(".")[0] == "torchvision":
                torchvision()
            module = importlib.import_module(where)
    except (ImportError, FileNotFoundError, SyntaxError) as error:
        raise TaskError(
            f"model.factory: {where} cannot be imported ({error}): correct it, or install what is missing"
        ) from None
    factory = getattr(module, name, None)
    if factory is None:
        raise TaskError(f"model.factory: {where} has no {name!r}{nearest(name, dir(module))}")
    try:
        return factory(**dict(spec.arguments))
    except TypeError as error:
        raise TaskError(f"model.factory: {spec.factory} does not take model.arguments: {error}") from None
