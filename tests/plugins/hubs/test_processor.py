"""Inputs of Hugging Face models are those of their own processors, or the setting that is not known is named."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.backends.torch.model.published import input_defaults
from tuner.backends.torch.model.vision import declare_operators
from tuner.errors import TaskError
from tuner.task import InputSpec, ModelSpec, decode_image, normalise

SMALL: dict[str, Any] = {"size": {"height": 48, "width": 48}}
CROPPED: dict[str, Any] = {"size": {"shortest_edge": 56}, "crop_size": {"height": 48, "width": 48}}

SAME: list[tuple[str, dict[str, Any]]] = [
    ("ViT", SMALL),
    ("ViT", {**SMALL, "do_normalize": False}),
    ("ViT", {**SMALL, "do_rescale": False}),
    ("ViT", {**SMALL, "rescale_factor": 1 / 127.5}),
    ("ViT", {**SMALL, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}),
    ("ViT", {**SMALL, "do_rescale": False, "image_mean": [123.675, 116.28, 103.53], "image_std": [58.4, 57.1, 57.4]}),
    ("ViT", {**SMALL, "resample": 3}),
    ("MobileNetV2", CROPPED),
    ("MobileNetV2", {**CROPPED, "do_normalize": False}),
    ("MobileNetV2", {**CROPPED, "do_center_crop": False, "size": {"shortest_edge": 48}}),
    ("MobileViT", {**CROPPED, "do_flip_channel_order": False}),
    ("EfficientNet", SMALL),
    ("EfficientNet", {**SMALL, "include_top": False}),
    ("EfficientNet", {**SMALL, "rescale_offset": True, "rescale_factor": 1 / 127.5}),
    ("EfficientNet", {**SMALL, "rescale_offset": True, "rescale_factor": 1 / 127.5, "do_normalize": False}),
    ("ConvNext", {"size": {"shortest_edge": 48}, "crop_pct": 0.8}),
    ("ConvNext", {"size": {"shortest_edge": 384}}),
    ("Levit", {"size": {"shortest_edge": 48}, "crop_size": {"height": 48, "width": 48}}),
    ("PoolFormer", {}),
    ("Beit", {**SMALL, "do_center_crop": False}),
    ("CLIP", {**CROPPED, "size": {"shortest_edge": 48}}),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("MobileViT", CROPPED, r"swaps red and blue \(do_flip_channel_order\).*x\.flip\(1\)"),
    ("ViT", {"size": {"height": 48, "width": 32}}, r"inputs of the shape \[3, 48, 32\].*size = "),
    ("MobileNetV2", {**CROPPED, "crop_size": {"height": 64, "width": 64}}, "crop_size = "),
    ("MobileNetV2", {"do_resize": False, "crop_size": {"height": 48, "width": 48}}, "crop_size = "),
]


def saved(folder: Path, kind: str, settings: dict[str, Any]) -> Any:
    if find_spec("transformers") is None:
        pytest.skip("needs transformers")
    declare_operators()
    import transformers

    processor = getattr(transformers, f"{kind}ImageProcessor")(**settings)
    processor.save_pretrained(folder)
    return processor


@pytest.mark.parametrize(("kind", "settings"), SAME)
def test_inputs_are_those_of_the_models_own_processor(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    processor = saved(tmp_path / "model", kind, settings)
    defaults = input_defaults(ModelSpec(f"hf:{tmp_path}/model"))
    assert defaults is not None
    spec = InputSpec("images", defaults.size, defaults.resize, defaults.mean, defaults.std)
    generator = np.random.default_rng(0)
    for side in (40, 150, 401):
        rough = generator.integers(0, 256, (9, 9, 3)).astype(np.uint8)
        photo = Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)
        photo.save(tmp_path / "photo.png")
        theirs = np.asarray(processor(images=photo, return_tensors="np")["pixel_values"])[0]
        own = normalise(decode_image(tmp_path / "photo.png", spec)[np.newaxis], spec)[0]
        assert own.shape == theirs.shape
        difference = np.abs(own - theirs).mean(axis=(1, 2)) * np.asarray(spec.std)  # in pixels from 0 to 1
        assert difference.max() < 0.01


@pytest.mark.parametrize(("kind", "settings", "message"), REFUSED)
def test_what_input_cannot_say_is_refused_by_name(
    tmp_path: Path, kind: str, settings: dict[str, Any], message: str
) -> None:
    saved(tmp_path / "model", kind, settings)
    with pytest.raises(TaskError, match=message) as caught:
        input_defaults(ModelSpec(f"hf:{tmp_path}/model"))
    assert "\n" not in str(caught.value)
