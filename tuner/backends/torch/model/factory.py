"""Build a model: call its factory and load its weights."""

import importlib
import importlib.util
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from tuner.backends.torch.model.head import resize_head
from tuner.backends.torch.model.resize import resize
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.model.weights import fit, read_weights
from tuner.errors import TaskError, first_line, nearest
from tuner.reading import read_text
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
            f"model.factory: {spec.factory} does not take model.arguments: {first_line(error)}{_raised_in(error)}: "
            "correct it"
        ) from error
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; they need the line
        raise TaskError(
            f"model.factory: {spec.factory} raised {first_line(error)}{_raised_in(error)}: correct it"
        ) from error


def _module(where: str) -> ModuleType:
    """Import the module of a factory, or the Python file.

    Raises:
        TaskError: It cannot be imported.
    """
    try:
        if where.endswith(".py"):
            if "torchvision" in read_text(where, TaskError, "give a Python file in UTF-8"):
                torchvision()  # so that the user's own import of it works here too
            return _imported(where)
        if where.split(".", maxsplit=1)[0] == "torchvision":
            torchvision()
        return importlib.import_module(where)
    except (ImportError, FileNotFoundError, SyntaxError) as error:
        raise TaskError(
            f"model.factory: {where} cannot be imported ({error}): correct it, or install what is missing"
        ) from None
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"model.factory: importing {where} raised {first_line(error)}{_raised_in(error)}: correct it"
        ) from error


def _imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("check the path")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _raised_in(error: BaseException) -> str:
    """Return where the user's code raised, as `` (net.py, line 14)``; empty where it was not reached."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" ({Path(last.filename).name}, line {last.lineno})" if last.filename != __file__ else ""
