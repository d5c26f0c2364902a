"""Models of timm: ``timm:NAME`` without weights, ``timm:NAME.TAG`` with those of the tag."""

from pathlib import Path

import timm
from timm.data import resolve_data_config
from timm.models._hub import check_cached_file
from torch import nn

from tuner.backends.torch.model.checkpoint import read_checkpoint
from tuner.distribution import may_fetch
from tuner.errors import TaskError, nearest
from tuner.task import InputDefaults, ModelSpec
from tuner_hubs.torch.hub import WEIGHTS, not_here, require_here


def build(name: str, spec: ModelSpec) -> nn.Module:
    """Build a model; with its own weights, where the task gives no others and there are any."""
    _require_timm(name)
    pretrained, arguments = "." in name and spec.weights is None, dict(spec.arguments)
    published = timm.get_pretrained_cfg(name)
    if pretrained and published is not None:
        if published.hf_hub_id:
            files = (published.hf_hub_filename,) if published.hf_hub_filename else ("timm_model.safetensors", *WEIGHTS)
            require_here(spec, published.hf_hub_id, files)
        elif published.url and not may_fetch() and not check_cached_file(published.url, check_hash=False):
            raise not_here(spec)
    if spec.weights is not None and published is not None and isinstance(published.classifier, str):
        state, _ = read_checkpoint(Path(spec.weights), (f"{published.classifier}.weight",))
        head = state.get(f"{published.classifier}.weight")
        arguments = {"num_classes": len(head)} | arguments if head is not None else arguments
    model: nn.Module = timm.create_model(name, pretrained=pretrained, **arguments)
    return model


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
