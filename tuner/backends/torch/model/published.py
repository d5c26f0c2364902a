"""Models that libraries publish by name: timm's, Hugging Face's, torchvision's; and how their inputs are prepared.

Of ``timm:NAME.TAG`` and ``hf:OWNER/NAME``, what is on this device is used; the rest is fetched only where the user asks
for it (`tuner.distribution.FETCH`). Names of torchvision weights in a task file ask for them.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from tuner.arrays import Array, Codes
from tuner.backends.torch.model.checkpoint import read_checkpoint
from tuner.backends.torch.model.processor import defaults_of_processor
from tuner.backends.torch.model.vision import declare_operators, torchvision
from tuner.distribution import FETCH, may_fetch
from tuner.errors import TaskError, first_line, missing_extra, nearest
from tuner.task import InputDefaults, ModelSpec

#: Files of weights on the hub.
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
#: Files that say how the inputs of a Hugging Face model are prepared, the newer first.
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_BARE = (
    "its folder has no image processor, so pixels are 0 to 1: give [input] mean and std if it was trained with others"
)


@contextmanager
def library_errors(failed: str, way_out: str) -> Iterator[None]:
    """Say what failed with the library's own error, as TaskError, or name the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
    except TaskError:
        raise
    except Exception as error:  # of a library, about files or the network
        raise TaskError(f"{failed} {first_line(error)}: {way_out}") from error


def build_published(spec: ModelSpec) -> nn.Module:
    """Build a model of timm or Hugging Face; with its own weights, where the task gives no others and there are any."""
    library, name = spec.source or ("", "")
    build = {"timm": _timm, "hf": _hugging_face}[library]
    with library_errors(f"model.factory: {spec.factory} raised", "correct its name or model.arguments"):
        return build(name, spec)


def input_defaults(spec: ModelSpec) -> InputDefaults | None:
    """Return how the inputs of a published model are prepared, by its own configuration; None where it does not say."""
    with library_errors(f"how inputs are prepared for {spec.factory} cannot be read:", "give [input]"):
        declare_operators()
        if spec.source is not None:
            library, name = spec.source
            ask = {"timm": _timm_input, "hf": _hugging_face_input}.get(library)
            return ask(name, spec) if ask is not None else None  # a model file does not say how its inputs are made
        if spec.factory.startswith("torchvision.models:") and spec.weights is not None:
            return _torchvision_input(spec)
    return None


def _require_here(spec: ModelSpec, hub: str, files: Collection[str]) -> None:
    """Keep the hub's library from the network unless the user asks for it, and then require that some file is here."""
    from huggingface_hub import constants, try_to_load_from_cache

    constants.HF_HUB_OFFLINE = _hub_is_off() or not may_fetch()
    here = any(isinstance(try_to_load_from_cache(hub, file), str) for file in files)
    if constants.HF_HUB_OFFLINE and not here:
        raise _not_here(spec)


@cache
def _hub_is_off() -> bool:
    """Return whether the user keeps the hub's library from the network, as it was before this module changed that."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _not_here(spec: ModelSpec) -> TaskError:
    return TaskError(
        f"model.factory: {spec.factory} is not on this device, and nothing is fetched unasked: add --fetch to tuner "
        f"run once, or set {FETCH}=1 for any command, which downloads it; or give a file as model.weights, or a folder"
    )


def _timm(name: str, spec: ModelSpec) -> nn.Module:
    import timm
    from timm.models._hub import check_cached_file

    _require_timm(name)
    pretrained, arguments = "." in name and spec.weights is None, dict(spec.arguments)
    published = timm.get_pretrained_cfg(name)
    if pretrained and published is not None:
        if published.hf_hub_id:
            files = (published.hf_hub_filename,) if published.hf_hub_filename else ("timm_model.safetensors", *_WEIGHTS)
            _require_here(spec, published.hf_hub_id, files)
        elif published.url and not may_fetch() and not check_cached_file(published.url, check_hash=False):
            raise _not_here(spec)
    if spec.weights is not None and published is not None and isinstance(published.classifier, str):
        state, _ = read_checkpoint(Path(spec.weights), (f"{published.classifier}.weight",))
        head = state.get(f"{published.classifier}.weight")
        arguments = {"num_classes": len(head)} | arguments if head is not None else arguments
    model: nn.Module = timm.create_model(name, pretrained=pretrained, **arguments)
    return model


def _require_timm(name: str) -> None:
    import timm

    if not timm.is_model(name):
        models = timm.list_models()
        raise TaskError(f"model.factory: timm has no model {name!r}{nearest(name, models)}")


def _timm_input(name: str, spec: ModelSpec) -> InputDefaults | None:
    import timm
    from timm.data import resolve_data_config

    _require_timm(name)
    published = timm.get_pretrained_cfg(name)
    if published is None:
        return None
    values = resolve_data_config({}, pretrained_cfg=published.to_dict())
    size = dict(spec.arguments).get("img_size", values["input_size"][-1])
    return InputDefaults(size, int(size / values["crop_pct"]), tuple(values["mean"]), tuple(values["std"]))


def _hugging_face(name: str, spec: ModelSpec) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = Path(name)
    if not folder.is_absolute():
        _require_here(spec, name, ("config.json",))
    config = transformers.AutoConfig.from_pretrained(
        name, local_files_only=folder.is_absolute(), **dict(spec.arguments)
    )
    kinds = (transformers.AutoModelForImageClassification, transformers.AutoModelForAudioClassification)
    kind = next((kind for kind in kinds if type(config) in kind._model_mapping), None)  # noqa: SLF001 - without a public name
    if kind is None:
        raise TaskError(
            f"model.factory: {spec.factory} is a {type(config).__name__}, which classifies neither images nor sounds: "
            "give another model"
        )
    if not folder.is_absolute() and spec.weights is None:
        _require_here(spec, name, _WEIGHTS)
    has_weights = not folder.is_absolute() or any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    model: nn.Module = (
        kind.from_pretrained(name, config=config, local_files_only=folder.is_absolute())
        if has_weights and spec.weights is None
        else kind.from_config(config)
    )
    return model


def _hugging_face_input(name: str, spec: ModelSpec) -> InputDefaults | None:
    """Return how an image processor prepares pictures; of a model without one, its own size, or None without that."""
    if not Path(name).is_absolute():
        _require_here(spec, name, ("config.json",))
    if not any(_is_of_images(_read_json(name, file)) for file in _PROCESSORS):
        side = dict(spec.arguments).get("image_size", _read_json(name, "config.json").get("image_size"))
        side = side[0] if isinstance(side, list) and side else side
        return (
            InputDefaults(side, side, (0.0,), (1.0,), f"note: {spec.name}: {_BARE}") if isinstance(side, int) else None
        )
    import numpy as np
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(name, local_files_only=Path(name).is_absolute())

    def process(picture: Codes) -> Array:
        prepared = processor(picture, input_data_format="channels_last", return_tensors="np")
        pixels: Array = np.asarray(prepared["pixel_values"])[0]
        return pixels

    found = defaults_of_processor(process, processor.to_dict(), spec)
    side = dict(spec.arguments).get("image_size")
    return found if side is None else replace(found, size=side, resize=side)


def _is_of_images(values: Mapping[str, Any]) -> bool:
    """Return whether a file describes an image processor; those of sounds have other settings."""
    own = values.get("image_processor", values)
    return any(key in own for key in ("image_processor_type", "size", "crop_size", "image_mean", "do_resize"))


def _read_json(name: str, file: str) -> Mapping[str, Any]:
    """Return a file of a model's folder, or of the hub; nothing where there is none."""
    path: Path | None = Path(name) / file
    if not Path(name).is_absolute():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError, OfflineModeIsEnabled

        try:
            path = Path(hf_hub_download(name, file))
        except (EntryNotFoundError, LocalEntryNotFoundError, OfflineModeIsEnabled):
            return {}
    if path is None or not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TaskError(f"{path}: not valid JSON ({error}): give a folder that save_pretrained wrote") from error
    return values if isinstance(values, dict) else {}


def _torchvision_input(spec: ModelSpec) -> InputDefaults | None:
    """Return the preset of some weights that torchvision knows by name."""
    models, builder = torchvision().models, spec.factory.rpartition(":")[2]
    try:
        weights = models.get_model_weights(builder)[str(spec.weights)]
    except (ValueError, KeyError):
        return None
    preset = weights.transforms()
    sizes = (preset.crop_size[0], max(preset.resize_size[0], preset.crop_size[0]))
    return InputDefaults(*sizes, tuple(preset.mean), tuple(preset.std))
