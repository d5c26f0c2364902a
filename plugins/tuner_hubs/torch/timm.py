"""Models of timm: ``timm:NAME`` without weights, ``timm:NAME.TAG`` with those of the tag."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import timm
from timm.data import resolve_data_config
from timm.models._hub import check_cached_file
from torch import Tensor, nn

from tuner.backends.torch.model.checkpoint import read_checkpoint
from tuner.distribution import may_fetch
from tuner.errors import TaskError, nearest
from tuner.task import InputDefaults, ModelSpec
from tuner.task.spec import lacks_tag
from tuner_hubs.torch.hub import WEIGHTS, not_here, require_here

#: Names of the first tensor and of the head in weights of EfficientNet-PyTorch.
PORT_STEM, PORT_HEAD = "_conv_stem.weight", "_fc"
#: Prefix of the timm networks that these weights fit; others pad and normalise differently.
PORTS = "tf_efficientnet_"


def build(name: str, spec: ModelSpec) -> nn.Module:
    """Build a model; with its own weights, where the task gives no others and there are any."""
    _require_timm(name)
    pretrained, arguments = not lacks_tag(spec.factory) and spec.weights is None, dict(spec.arguments)
    published = timm.get_pretrained_cfg(name)
    if pretrained and published is not None:
        if published.hf_hub_id:
            files = (published.hf_hub_filename,) if published.hf_hub_filename else ("timm_model.safetensors", *WEIGHTS)
            require_here(spec, published.hf_hub_id, files)
        elif published.url and not may_fetch() and not check_cached_file(published.url, check_hash=False):
            raise not_here(spec)
    if spec.weights is not None and published is not None and isinstance(published.classifier, str):
        state, _ = read_checkpoint(Path(spec.weights), (f"{published.classifier}.weight",))
        head = state.get(f"{published.classifier}.weight", state.get(f"{PORT_HEAD}.weight"))
        arguments = {"num_classes": len(head)} | arguments if head is not None else arguments
    model: nn.Module = timm.create_model(name, pretrained=pretrained, **arguments)
    if spec.weights is not None and name.startswith(PORTS):
        model.translated = partial(translated, tuple(model.state_dict()))  # type: ignore[assignment]  # see factory.fit
    return model


def translated(own: Sequence[str], state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return EfficientNet-PyTorch's weights under timm's names, and any others unchanged.

    Args:
        own: Names of the network's tensors.
        state: The weights. EfficientNet-PyTorch has the same layers in the same order, as flat blocks.
    """
    if PORT_STEM not in state or [_kind(name) for name in own] != [_kind(name) for name in state]:
        return state
    return dict(zip(own, state.values(), strict=True))


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def input_defaults(name: str, spec: ModelSpec) -> InputDefaults | None:
    """Return how the inputs of a model are prepared, by its own configuration; None where it has none."""
    _require_timm(name)
    published = timm.get_pretrained_cfg(name)
    if published is None:
        return None
    values = resolve_data_config({}, pretrained_cfg=published.to_dict())
    size = dict(spec.arguments).get("img_size", values["input_size"][-1])
    return InputDefaults(size, int(size / values["crop_pct"]), tuple(values["mean"]), tuple(values["std"]))


def _require_timm(name: str) -> None:
    if not timm.is_model(name):
        models = timm.list_models()
        raise TaskError(f"model.factory: timm has no model {name!r}{nearest(name, models)}")
