"""Build a model: call its factory and load its weights."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from tuner.backends.torch.model.graph.places import raised_in
from tuner.backends.torch.model.head import count_outputs
from tuner.backends.torch.model.open.published import build_published
from tuner.backends.torch.model.open.vision import declare_operators
from tuner.backends.torch.model.open.weights import fit, read_weights
from tuner.backends.torch.model.resize import resize
from tuner.errors import TaskError, first_line, nearest
from tuner.task import ModelSpec


def build(spec: ModelSpec) -> nn.Module:
    """Call the factory and load the weights.

    Raises:
        TaskError: A part cannot be used; the message says what would do.
    """
    declare_operators()  # before any import that may reach torchvision
    model = _call_factory(spec) if spec.source is None else build_published(spec)
    if not isinstance(model, nn.Module):
        raise TaskError(
            f"model.factory must return a torch module, but {spec.factory} returns a {type(model).__name__}: "
            "name another function"
        )
    return with_weights(model, spec)


def with_weights(model: nn.Module, spec: ModelSpec) -> nn.Module:
    """Load the weights that a task names, if any, and put the model in evaluation mode.

    Raises:
        TaskError: They do not fit.
    """
    if spec.weights is not None:
        state = read_weights(spec)
        if spec.head:  # a bundle's weights, whose shapes may differ from the factory's
            resize(model, state)
            count_outputs(model, len(spec.head))
        fit(model, state, str(spec.weights), needs_head=spec.pretrain is None)
    return model.eval()


def _call_factory(spec: ModelSpec) -> Any:
    where, _, name = spec.factory.rpartition(":")
    module = _module(where)
    factory = getattr(module, name, None)
    if factory is None:
        raise TaskError(f"model.factory: {where} has no {name!r}{nearest(name, dir(module))}")
    try:
        return factory(**dict(spec.arguments))
    except TypeError as error:
        raise TaskError(
            f"model.factory: {spec.factory} does not take model.arguments: {first_line(error)}{raised_in(error)}: "
            "correct it"
        ) from error
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; they need the line
        raise TaskError(
            f"model.factory: {spec.factory} raised {first_line(error)}{raised_in(error)}: correct it"
        ) from error


def _module(where: str) -> ModuleType:
    """Import the module of a factory, or the Python file."""
    try:
        if where.endswith(".py"):
            return _imported(where)
        return importlib.import_module(where)
    except (ImportError, FileNotFoundError, SyntaxError) as error:
        raise TaskError(
            f"model.factory: {where} cannot be imported ({error}): correct it, or install what is missing"
        ) from error
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"model.factory: importing {where} raised {first_line(error)}{raised_in(error)}: correct it"
        ) from error


def _imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("check the path")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
