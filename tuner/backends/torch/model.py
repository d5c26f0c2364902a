"""Load a model, give it one head row per label, and describe it as a chain of blocks."""

import hashlib
import importlib
import importlib.util
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.torch.graph import Chain, chain
from tuner.backends.torch.vision import torchvision
from tuner.backends.torch.widths import resize
from tuner.errors import TaskError, nearest
from tuner.plan import BlockInfo, ModelInfo
from tuner.task import ModelSpec, Task, normalise


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model ready to be personalised.

    Attributes:
        model: With the union head, in evaluation mode.
        chain: Its blocks; None where it cannot be traced.
        info: The same in numbers.
        trusted_rows: How many of the first head rows the given model brought along.
    """

    model: nn.Module
    chain: Chain | None
    info: ModelInfo
    trusted_rows: int
    task_fingerprint: str

    def prefix(self, split: int) -> nn.Module:
        """Return blocks ``[0, split)``; shares the model's weights."""
        return self.chain.prefix(split) if self.chain else nn.Identity()

    def tail(self, split: int) -> nn.Module:
        """Return blocks ``[split, num_blocks)``; shares the model's weights."""
        if self.chain is None or split == 0:
            return self.model
        return self.chain.tail(split)


_KEPT: list[tuple[Task, Loaded]] = []  # at most one model, on its way from `keep` to `load`


def build(spec: ModelSpec) -> nn.Module:
    """Call the factory and load the weights.

    Raises:
        TaskError: Which part cannot be used, and what would do.
    """
    model = _call_factory(spec)
    if not isinstance(model, nn.Module):
        raise TaskError(f"model.factory {spec.factory} returns a torch module, but this is a {type(model).__name__}")
    if spec.head:
        _resize_head(model, tuple(range(len(spec.head))), 0, spec.factory)
    if spec.weights is not None:
        state = read_weights(spec)
        if spec.head:  # a bundle's, whose widths may have grown from others than the factory's
            resize(model, {name: value for name, value in state.items() if name in model.state_dict()})
        fit(model, state, str(spec.weights))
    return model.eval()


def read_weights(spec: ModelSpec) -> Mapping[str, torch.Tensor]:
    """Read a state dictionary, without pickle's code execution.

    Raises:
        TaskError: The file is not one.
    """
    weights = str(spec.weights)
    path = Path(weights)
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise TaskError(f"model.weights: {path} is not a safetensors file: {error}") from None
    if path.is_absolute() or path.suffix:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # noqa: BLE001 - torch raises many kinds for a file that is not its own
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TaskError(f"model.weights: {path} does not load as a state_dict of tensors only: {reason}") from None
        if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise TaskError(f"model.weights: {path} holds a state_dict, but this is a {type(state).__name__}: save one")
        return state
    return _named_weights(spec, weights)


def fit(model: nn.Module, state: Mapping[str, torch.Tensor], source: str) -> None:
    """Load a state dictionary that must fit to the last tensor.

    Raises:
        TaskError: The first tensor that does not fit.
    """
    own = model.state_dict()
    for name, value in state.items():
        if name not in own:
            raise TaskError(f"model.weights: {source} has {name!r}, the model has not{nearest(name, own)}")
        if own[name].shape != value.shape:
            raise TaskError(
                f"model.weights: {name!r} is {list(own[name].shape)} in the model, {list(value.shape)} in {source}: "
                "use the factory and arguments the weights were trained with"
            )
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    if missing:
        raise TaskError(f"model.weights: {source} lacks {missing[0]!r} and {len(missing) - 1} more of the model's")
    model.load_state_dict(state, strict=False)


def load(task: Task, info: ModelInfo | None = None) -> Loaded:
    """Build the task's model with one head row per label, and find its blocks.

    Args:
        task: Names the model.
        info: What `describe` said of it before; measured anew where it is not given.

    Raises:
        TaskError: The model cannot be built, weights do not fit, the head cannot be given the labels' rows, or the
            model is not the one that was described.
    """
    if _KEPT and _KEPT[-1][0] is task:
        return _described(task, _KEPT.pop()[1], info)
    torch.manual_seed(0)  # a factory without weights starts from the same ones every time
    model = build(task.model)
    if task.model.pretrain is not None:
        from tuner.backends.torch.pretrain import pretrained

        pretrained(task, model)
    sample = _sample(task)
    rows = _check_forward(task, model, sample)
    new = len(task.labels) - len(task.head_rows)
    wanted = task.head_rows or ()
    if max(wanted, default=-1) >= rows:
        raise TaskError(f"classes name row {max(wanted)} of the head, but the model has {rows} outputs")
    if wanted != tuple(range(rows)) or new:
        _resize_head(model, wanted, new, task.model.factory)
    note, found = "", None
    try:
        found = chain(model, sample)
    except ValueError as error:
        note = f"the model cannot be traced ({error}): only whole-model training is offered"
    if found is not None and len(found.blocks) < 2:  # noqa: PLR2004 - one block is no chain
        note = "the model has no inner cut point: only whole-model training is offered"
        found = None
    fingerprint = _fingerprint(model, found)
    own = info if info is not None and info.fingerprint == fingerprint else None
    own = own or _info(task, model, found, sample, note, fingerprint)
    return _described(task, Loaded(model, found, own, len(task.head_rows), task.fingerprint()), info)


def keep(task: Task) -> None:
    """Load a task's model now; the next `load` of it takes it over, in this process or in each one forked from it."""
    _KEPT[:] = [(task, load(task))]


def _described(task: Task, loaded: Loaded, info: ModelInfo | None) -> Loaded:
    if info is not None and info.fingerprint != loaded.info.fingerprint:
        raise TaskError(f"{task.model.factory} or its weights changed since the plan was made: run `tuner run` again")
    return loaded


def state_hash(*modules: nn.Module) -> str:
    """Hash every weight and buffer (32 hex digits)."""
    digest = hashlib.blake2b(digest_size=16)
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def structure_hash(module: nn.Module) -> str:
    """Hash what a module computes beside its weights (32 hex digits): its code, and every part's class and settings.

    The code of a traced graph says ``self.act(x)``; only the part's class tells a ReLU from a Tanh.
    """
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(module, fx.GraphModule):
        digest.update(module.code.encode())
    for name, part in module.named_modules():
        settings = {key: value for key, value in vars(part).items() if not key.startswith("_") and key != "training"}
        said = "" if isinstance(part, fx.GraphModule) else str(sorted((k, _said(v)) for k, v in settings.items()))
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {said}".encode())
        for key, value in sorted(part.named_buffers(recurse=False)):
            if key in part._non_persistent_buffers_set:  # noqa: SLF001 - torch has no public name for it
                digest.update(
                    f"{key}{tuple(value.shape)}".encode() + value.detach().cpu().contiguous().numpy().tobytes()
                )
    return digest.hexdigest()


def _said(value: object) -> str:
    """Return a setting as text that is the same in every process."""
    if isinstance(value, torch.Tensor):
        return hashlib.blake2b(value.detach().cpu().contiguous().numpy().tobytes(), digest_size=16).hexdigest()
    return getattr(value, "__qualname__", None) or re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def head_of(model: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d] | None:
    """Return the last linear layer (or 1 × 1 convolution), which gives the outputs."""
    found = None
    for name, module in model.named_modules():
        pointwise = isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
        if isinstance(module, nn.Linear) or (pointwise and isinstance(module, nn.Conv2d)):
            found = (name, module)
    return found


def _call_factory(spec: ModelSpec) -> Any:
    where, _, name = spec.factory.rpartition(":")
    try:
        if where.endswith(".py"):
            made = importlib.util.spec_from_file_location(Path(where).stem, where)
            if made is None or made.loader is None:
                raise TaskError(f"model.factory: {where} cannot be imported")
            if "torchvision" in Path(where).read_text(encoding="utf-8", errors="replace"):
                torchvision()  # so that the user's own import of it works here too
            module = importlib.util.module_from_spec(made)
            made.loader.exec_module(module)
        else:
            if where.split(".")[0] == "torchvision":
                torchvision()
            module = importlib.import_module(where)
    except (ImportError, FileNotFoundError, SyntaxError) as error:
        raise TaskError(f"model.factory: {where} cannot be imported: {error}") from None
    factory = getattr(module, name, None)
    if factory is None:
        raise TaskError(f"model.factory: {where} has no {name!r}{nearest(name, dir(module))}")
    try:
        return factory(**dict(spec.arguments))
    except TypeError as error:
        raise TaskError(f"model.factory: {spec.factory} does not take model.arguments: {error}") from None


def _named_weights(spec: ModelSpec, name: str) -> Mapping[str, torch.Tensor]:
    models = torchvision().models
    builder = spec.factory.rpartition(":")[2]
    try:
        known = models.get_model_weights(builder)
    except ValueError:
        raise TaskError(
            f"model.weights: {name!r} names torchvision weights, but {builder!r} is not its model"
        ) from None
    if name not in known.__members__:
        raise TaskError(f"model.weights: {builder} has no weights {name!r}{nearest(name, known.__members__)}")
    try:
        state: Mapping[str, torch.Tensor] = known[name].get_state_dict(progress=False, check_hash=True)
    except OSError as error:
        raise TaskError(f"model.weights: {name} is not on this device and cannot be fetched ({error})") from None
    return state


def _sample(task: Task) -> torch.Tensor:
    batch = task.local.train.load(0)[None]
    return torch.from_numpy(normalise(batch, task.input))


def _check_forward(task: Task, model: nn.Module, sample: torch.Tensor) -> int:
    try:
        with torch.inference_mode():
            output = model(sample)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TaskError(
            f"the model does not take inputs of shape {list(sample.shape)}: {reason}; see [input]"
        ) from None
    if not isinstance(output, torch.Tensor) or output.ndim != 2:  # noqa: PLR2004 - [n, classes]
        shape = list(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise TaskError(f"{task.model.factory} gives one tensor [n, classes], but it gave {shape}")
    return int(output.shape[1])


def _resize_head(model: nn.Module, rows: tuple[int, ...], new: int, factory: str) -> None:
    """Keep the given rows of the last layer and add `new` rows of zeros."""
    found = head_of(model)
    if found is None:
        raise TaskError(f"{factory} has no linear last layer: rows for new classes cannot be added")
    name, head = found
    keep = torch.tensor(rows, dtype=torch.long)
    features = head.in_features if isinstance(head, nn.Linear) else head.in_channels
    made = (
        nn.Linear(features, len(rows) + new, bias=head.bias is not None)
        if isinstance(head, nn.Linear)
        else nn.Conv2d(features, len(rows) + new, 1, bias=head.bias is not None)
    )
    with torch.no_grad():
        fresh = head.weight.new_zeros((new, *head.weight.shape[1:]))
        given = head.weight[keep] if head.weight.shape[0] > max(rows, default=-1) else made.weight[: len(rows)]
        made.weight.copy_(torch.cat([given, fresh]))
        if head.bias is not None and made.bias is not None:
            kept = head.bias[keep] if head.bias.shape[0] > max(rows, default=-1) else made.bias[: len(rows)]
            made.bias.copy_(torch.cat([kept, head.bias.new_zeros(new)]))
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, made)
    if hasattr(model, "num_classes"):  # squeezenet reshapes by it
        setattr(model, "num_classes", len(rows) + new)  # noqa: B010 - torch types attributes as tensors or modules


def _fingerprint(model: nn.Module, found: Chain | None) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(state_hash(model).encode())
    digest.update(structure_hash(found.module if found else model).encode())
    return digest.hexdigest()


def _info(
    task: Task, model: nn.Module, found: Chain | None, sample: torch.Tensor, note: str, fingerprint: str
) -> ModelInfo:
    blocks: tuple[BlockInfo, ...]
    if found is None:
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(sample)
        count = sum(value.numel() for value in model.parameters())
        shape = tuple(sample.shape[1:])
        blocks = (BlockInfo("model", "input", shape, counter.get_total_flops(), count, saved_bytes(model, sample)),)
    else:
        blocks = tuple(_block_infos(found, sample))
    return ModelInfo(task.model.factory.rpartition(":")[2], fingerprint, len(task.labels), blocks, note)


def _block_infos(found: Chain, sample: torch.Tensor) -> list[BlockInfo]:
    infos, value = [], sample
    nodes = found.nodes
    for index, block in enumerate(found.blocks):
        end = found.blocks[index + 1].begin if index + 1 < len(found.blocks) else found.blocks[-1].end
        part = found.part(block.begin, end).eval()
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            result = part(value)
        kept = saved_bytes(part, value)
        count = sum(parameter.numel() for parameter in part.parameters())
        shape = tuple(nodes[block.begin].meta["tensor_meta"].shape[1:])
        infos.append(BlockInfo(block.name, block.cut, shape, counter.get_total_flops(), count, kept))
        value = result.clone()
    return infos


def saved_bytes(module: nn.Module, value: torch.Tensor) -> int:
    """Return the bytes autograd keeps for the backward pass, without the weights, for one sample."""
    weights = {parameter.data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), torch.enable_grad():
        module(value.clone().requires_grad_())
    return math.ceil(sum(kept.values()) / value.shape[0])
