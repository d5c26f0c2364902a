"""Models of Hugging Face: ``hf:OWNER/NAME``, or ``hf:FOLDER`` that ``save_pretrained`` wrote."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from tuner.arrays import Array, Codes
from tuner.errors import TaskError
from tuner.task import InputDefaults, ModelSpec
from tuner_hubs.torch.hub import WEIGHTS, require_here
from tuner_hubs.torch.processor import defaults_of_processor

#: Files that say how the inputs of a Hugging Face model are prepared, the newer first.
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_BARE = (
    "its folder has no image processor, so pixels are 0 to 1: give [input] mean and std if it was trained with others"
)


def build(name: str, spec: ModelSpec) -> nn.Module:
    """Build a model; with its own weights, where the task gives no others and there are any."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = Path(name)
    if not folder.is_absolute():
        require_here(spec, name, ("config.json",))
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
        require_here(spec, name, WEIGHTS)
    has_weights = not folder.is_absolute() or any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    model: nn.Module = (
        kind.from_pretrained(name, config=config, local_files_only=folder.is_absolute())
        if has_weights and spec.weights is None
        else kind.from_config(config)
    )
    return model


def input_defaults(name: str, spec: ModelSpec) -> InputDefaults | None:
    """Return how an image processor prepares pictures; of a model without one, its own size, or None without that."""
    if not Path(name).is_absolute():
        require_here(spec, name, ("config.json",))
    if not any(_is_of_images(_read_json(name, file)) for file in _PROCESSORS):
        side = dict(spec.arguments).get("image_size", _read_json(name, "config.json").get("image_size"))
        side = side[0] if isinstance(side, list) and side else side
        return (
            InputDefaults(side, side, (0.0,), (1.0,), f"note: {spec.name}: {_BARE}") if isinstance(side, int) else None
        )
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
