"""Read a state dictionary, and load one that must fit to the last tensor."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from tuner.backends.torch.model.head import head_of
from tuner.backends.torch.model.open.vision import torchvision
from tuner.errors import TaskError, nearest
from tuner.task import ModelSpec


def read_weights(spec: ModelSpec) -> Mapping[str, torch.Tensor]:
    """Read a state dictionary, without pickle's code execution.

    Raises:
        TaskError: The file is not a state dictionary.
    """
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
