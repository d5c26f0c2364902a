"""Build a model: call its factory and load its weights."""

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from tuner.backends.torch.model.graph.places import raised_in
from tuner.backends.torch.model.head import count_outputs, head_of
from tuner.backends.torch.model.open.published import build_published
from tuner.backends.torch.model.open.vision import declare_operators, torchvision
from tuner.backends.torch.model.resize import resize
from tuner.errors import TaskError, first_line, nearest
from tuner.task import ModelSpec


def build(spec: ModelSpec) -> nn.Module:
    """Call the factory and load the weights; a TaskError says what would do where a part cannot be used."""
    declare_operators()  # before any import that may reach torchvision
    model = _call_factory(spec) if spec.source is None else build_published(spec)
    if not isinstance(model, nn.Module):
        raise TaskError(
            f"model.factory must return a torch module, but {spec.factory} returns a {type(model).__name__}: "
            "name another function"
        )
    return with_weights(model, spec)


def with_weights(model: nn.Module, spec: ModelSpec) -> nn.Module:
    """Load the weights that a task names, if any, and put the model in evaluation mode."""
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


def read_weights(spec: ModelSpec) -> Mapping[str, torch.Tensor]:
    """Read a state dictionary, without pickle's code execution; raise TaskError where the file is none."""
    weights = str(spec.weights)
    path = Path(weights)
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise TaskError(
                f"model.weights: {path} cannot be read as a safetensors file ({error}): give another file"
            ) from None
    if path.is_absolute() or path.suffix:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - torch raises many kinds for a file that is not its own
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TaskError(
                f"model.weights: {path} cannot be read as a state_dict of tensors only ({reason}): "
                "save model.state_dict() with torch.save"
            ) from None
        if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise TaskError(
                f"model.weights must be a state_dict of tensors, but {path} holds a {type(state).__name__}: "
                "save model.state_dict() instead"
            )
        return state
    return _named_weights(spec, weights)


def fit(model: nn.Module, state: Mapping[str, torch.Tensor], source: str, *, needs_head: bool = True) -> None:
    """Load a state dictionary that must fit to the last tensor, but for the head where it is trained afterwards.

    Raises:
        TaskError: The first tensor that does not fit.
    """
    own = model.state_dict()
    if not set(state) <= set(own) and hasattr(model, "translated"):  # published weights, by their own names
        state = model.translated(state)  # type: ignore[operator]  # torch types attributes as tensors or modules
    for name, value in state.items():
        if name not in own:
            raise TaskError(f"model.weights: {source} has {name!r}, which the model does not have{nearest(name, own)}")
        if own[name].shape != value.shape:
            raise TaskError(
                f"model.weights: {name!r} is {list(own[name].shape)} in the model, {list(value.shape)} in {source}: "
                "use the factory and arguments the weights were trained with"
            )
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    head = head_of(model)
    if missing and not needs_head and head is not None and all(name.startswith(f"{head[0]}.") for name in missing):
        missing = []
    if missing:
        raise TaskError(
            f"model.weights: {source} lacks {missing[0]!r} and {len(missing) - 1} more weights of the model: "
            "use the factory and arguments the weights were trained with"
        )
    model.load_state_dict(state, strict=False)


def _named_weights(spec: ModelSpec, name: str) -> Mapping[str, torch.Tensor]:
    models = torchvision().models
    builder = spec.factory.rpartition(":")[2]
    try:
        members = models.get_model_weights(builder)
    except ValueError:
        raise TaskError(
            f"model.weights: {name!r} is read as the name of torchvision weights, but torchvision has none for "
            f"{builder!r}: give a file, such as {name}.pth, or a model of torchvision"
        ) from None
    if name not in members.__members__:
        raise TaskError(f"model.weights: {builder} has no weights {name!r}{nearest(name, members.__members__)}")
    try:
        state: Mapping[str, torch.Tensor] = members[name].get_state_dict(progress=False, check_hash=True)
    except OSError as error:
        raise TaskError(
            f"model.weights: {name} is not on this device and cannot be downloaded ({error}): "
            "connect to the network once, or give a file"
        ) from None
    return state
