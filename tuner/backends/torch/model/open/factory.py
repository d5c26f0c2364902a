"""Build a model: call its factory and load its weights."""

import importlib
import importlib.util
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tuner.backends.torch.model.checkpoint import read_checkpoint
from tuner.backends.torch.model.graph.places import raised_in
from tuner.backends.torch.model.head import count_outputs, head_of
from tuner.backends.torch.model.open.outputs import check_weights
from tuner.backends.torch.model.published import build_published
from tuner.backends.torch.model.resize import resize
from tuner.backends.torch.model.vision import declare_operators, torchvision
from tuner.errors import TaskError, first_line, nearest
from tuner.task import ModelSpec


def nothing(_: str) -> None:
    """Say nothing of how a model is opened."""


def build(
    spec: ModelSpec,
    sample: torch.Tensor | None = None,
    say: Callable[[str], object] = nothing,
    *,
    needs_head: bool = True,
) -> nn.Module:
    """Call the factory and load the weights; a TaskError says what would do where a part cannot be used.

    Lazy layers take their sizes from `sample`, float32 [1, ...]; `say` receives a line on the weights. Without
    `needs_head`, the weights need not have one.
    """
    declare_operators()  # before any import that may reach torchvision
    model = _call_factory(spec) if spec.source is None else build_published(spec)
    if not isinstance(model, nn.Module):
        raise TaskError(
            f"model.factory must return a torch module, but {spec.factory} returns a {type(model).__name__}: "
            "name another function"
        )
    _refuse_frozen(model, spec.factory)
    _give_sizes(model, spec, sample)
    return with_weights(model, spec, say, needs_head=needs_head)


def _refuse_frozen(model: nn.Module, factory: str) -> None:
    """Refuse modules whose layers cannot be changed or trained."""
    if isinstance(model, torch.jit.ScriptModule):
        raise TaskError(
            f"model.factory: {factory} returns a TorchScript module, whose layers cannot be changed: return the module "
            "that was scripted, and give its weights as model.weights"
        )
    quantised = next((name for name, module in model.named_modules() if _is_quantised(module)), None)
    if quantised is not None:
        raise TaskError(
            f"model.factory: {factory} returns a quantised module ({quantised!r}), and integers cannot be trained: "
            "return the module from before the quantisation; tuner export --int8 quantises what was trained"
        )


def _is_quantised(module: nn.Module) -> bool:
    return ".quantized" in type(module).__module__ or any(value.is_quantized for value in module.buffers(recurse=False))


def _give_sizes(model: nn.Module, spec: ModelSpec, sample: torch.Tensor | None) -> None:
    """Let lazy layers take their sizes from a sample."""
    if sample is None or not any(is_lazy(value) for value in (*model.parameters(), *model.buffers())):
        return
    try:
        with torch.no_grad():
            model.eval()(sample)
    except Exception as error:
        raise TaskError(
            f"model.factory: the lazy layers of {spec.factory} do not take inputs of shape {list(sample.shape)}: "
            f"{first_line(error)}{raised_in(error)}; see [input], or give them their sizes"
        ) from error


def with_weights(
    model: nn.Module, spec: ModelSpec, say: Callable[[str], object] = nothing, *, needs_head: bool = True
) -> nn.Module:
    """Load the weights that a task names, if any, and put the model in evaluation mode."""
    if spec.weights is not None:
        state, line = read_weights(spec, set(model.state_dict()))
        if line:
            say(line)
        if spec.head:  # a bundle's weights, whose shapes may differ from the factory's
            resize(model, state)
            count_outputs(model, len(spec.head))
        fit(model, state, str(spec.weights), needs_head=needs_head and spec.pretrain is None)
    check_weights(model, spec.factory if spec.weights is None else spec.weights)
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


def read_weights(spec: ModelSpec, own: Collection[str]) -> tuple[Mapping[str, torch.Tensor], str]:
    """Return the weights that a task names, by the names of a model's own, and a line on what was taken of the file.

    Raises:
        TaskError: The file has none; or torchvision has none by that name.
    """
    weights = str(spec.weights)
    return read_checkpoint(Path(weights), own) if Path(weights).is_absolute() else (_named_weights(spec, weights), "")


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
        if own[name].is_floating_point() != value.is_floating_point():
            raise TaskError(
                f"model.weights: {name!r} is {own[name].dtype} in the model, but {value.dtype} in {source}: codes of "
                "quantised weights are no weights: give those from before the quantisation"
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
