"""How a published image processor prepares pictures, found out by giving it some.

Its settings have other names, defaults and meanings in each library and version; what it makes of plain colours and of
a ramp has not. What cannot be expressed by `InputDefaults` is refused by the settings that are on.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.arrays import Array, Codes, Doubles
from tuner.errors import TaskError
from tuner.task import InputDefaults, InputSpec, ModelSpec, normalise
from tuner.task.data.images import fit_pixels
from tuner.task.spec import MOST_SIDE, PIXEL_MOST

#: Sides of the pictures, in pixels; one that is not square is twice as wide.
SIDE, OTHER_SIDE = 480, 300
#: Largest mean difference of inputs, in pixels from 0 to 1: that of two ways to interpolate between smooth colours.
SAME = 0.02
#: Settings that are expressed, or have no effect on pictures in colour.
KNOWN = frozenset(
    ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb", "rescale_offset", "include_top")
)
#: Part of the ramp that is not looked at, at both ends: how edges are interpolated differs.
EDGE = 0.1

#: Makes the model's input [C, H, W] of a picture, uint8 [H, W, 3].
Process = Callable[[Codes], Array]


def defaults_of_processor(process: Process, settings: Mapping[str, Any], model: ModelSpec) -> InputDefaults:
    """Return how the processor of a model prepares pictures.

    Raises:
        TaskError: It does something that ``[input]`` cannot say, with the settings that may be it.
    """
    name = model.factory
    black = process(_flat(0, 0, 0))
    if black.ndim != 3 or black.shape[0] != 3 or black.shape[1] != black.shape[2]:  # noqa: PLR2004 - [3, size, size]
        raise _refusal(name, settings, f"gives inputs of the shape {list(black.shape)}, must be [3, size, size]")
    base = _middle(black)
    colours = np.stack([_middle(process(_flat(*colour))) - base for colour in PIXEL_MOST * np.eye(3, dtype=np.uint8)])
    if (colours.argmax(axis=1) == [2, 1, 0]).all() and (np.abs(np.diagonal(colours[::-1])) > 0).all():
        raise TaskError(
            f"{name}: its image processor swaps red and blue (do_flip_channel_order), which [input] cannot: build the "
            "model in a function of yours that flips its input, x.flip(1), and give that as model.factory"
        )
    scale = np.diagonal(colours)
    if not (scale > 0).all() or np.abs(colours - np.diag(scale)).max() > SAME * scale.min():
        raise _refusal(name, settings, "mixes the colours")
    std = _plain(1 / scale)
    mean = _plain(-base / scale)
    size = black.shape[1]
    short = _short_side(process, base, scale)
    defaults = InputDefaults(size, short if short > size + 1 else size, mean, std)  # one pixel is rounding
    spec = InputSpec("images", size, defaults.resize, mean, std)
    if not (_agree(process, spec, SIDE, SIDE) and _agree(process, spec, OTHER_SIDE, OTHER_SIDE)):
        raise _refusal(name, settings, "prepares pictures in another way")
    if _agree(process, spec, SIDE, 2 * SIDE):
        return defaults
    caution = (
        f"note: {model.name} was trained on photos that its processor squeezes into a square; here the middle of a "
        "photo that is not square is taken"
    )
    return InputDefaults(size, defaults.resize, mean, std, caution)


def _refusal(name: str, settings: Mapping[str, Any], what: str) -> TaskError:
    on = [f"{key} = {value}" for key, value in settings.items() if _is_on(key, value)]
    those = f" ({', '.join(on)})" if on else ""
    return TaskError(
        f"{name}: its image processor {what}, which [input] cannot express{those}: give [input] size, mean and std, "
        "and do what else is needed in a model.factory of yours"
    )


def _is_on(key: str, value: Any) -> bool:
    return key not in KNOWN and (value is True or key in {"size", "crop_size", "pad_size", "rescale_factor"})


def _agree(process: Process, spec: InputSpec, height: int, width: int) -> bool:
    """Return whether a processor makes of a picture what is made of it here."""
    picture = _picture(height, width)
    theirs, own = process(picture), normalise(fit_pixels(picture, spec)[np.newaxis], spec)[0]
    if theirs.shape != own.shape:
        return False
    difference = np.abs(theirs - own).mean(axis=(1, 2)) * np.asarray(spec.std)
    return bool((difference < SAME).all())


def _short_side(process: Process, base: Doubles, scale: Doubles) -> int:
    """Return the side that a square picture is resized to before it is cropped, from what becomes of a ramp."""
    ramp = np.linspace(0, PIXEL_MOST, SIDE).round().astype(np.uint8)[:, np.newaxis, np.newaxis]
    rows = (process(np.tile(ramp, (1, SIDE, 3))).mean(axis=2)[1] - base[1]) / scale[1]  # the green channel, from 0 to 1
    inner = np.arange(round(EDGE * len(rows)), max(2, round((1 - EDGE) * len(rows))))
    slope = np.polyfit(inner, rows[inner], 1)[0]
    return round(SIDE / (SIDE - 1) / slope) if slope > 1 / MOST_SIDE else 0


def _flat(red: int, green: int, blue: int) -> Codes:
    return np.broadcast_to(np.array([red, green, blue], np.uint8), (SIDE, SIDE, 3)).copy()


def _middle(values: Array) -> Doubles:
    """Return the colour in the middle of an input, float64 [3]."""
    middle: Doubles = np.asarray(values, np.float64)[:, values.shape[1] // 2, values.shape[2] // 2]
    return middle


def _picture(height: int, width: int) -> Codes:
    """Return a smooth picture of three colours that no flip or turn leaves as it is."""
    down, right = np.mgrid[:height, :width] / height
    waves = [np.sin(2.1 * right + down), np.cos(3.3 * down - 0.7 * right), np.sin(4.2 * right * down + 0.4)]
    return np.asarray((PIXEL_MOST / 2 * (1 + np.stack(waves, axis=-1))).round(), np.uint8)


def _plain(values: Doubles) -> tuple[float, ...]:
    """Return values as somebody wrote them: with six figures, and without the noise of float32."""
    return tuple(float(f"{value:.6g}") if abs(value) > SAME * 1e-3 else 0.0 for value in values.tolist())
