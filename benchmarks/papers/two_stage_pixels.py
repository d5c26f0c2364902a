"""What a single stage reads: pixels in memory, changed at random, through frozen blocks whose norms are folded.

Photos stay uint8, channels last. A crop is a slice, resized by PyTorch's own kernel for uint8; a flip and a shift are
views; only what the network reads becomes float32, in one multiply and add. The changes are drawn as those of stored
maps are (`tuner.augment.maps`).
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from tuner.backends.torch.features.access import Access
from tuner.backends.torch.trial.inputs import TailInputs, inference_prefix

SMALLEST_AREA, WIDEST_ASPECT, FARTHEST = 0.5, 4 / 3, 0.1


def pixel_inputs(here: Access, cut: int, strength: float, seed: int) -> TailInputs:
    """Return the task's local training photos as a tail's inputs: changed and run through the frozen blocks each time.

    Args:
        here: The task, whose input has a mean and a deviation for each channel, and the model.
        cut: Block number where the tail begins.
        strength: Of the random changes.
        seed: Of their generator.
    """
    train, spec, generator = here.task.local.train, here.task.input, np.random.default_rng((seed, 1))
    stacked = torch.from_numpy(np.stack([train.load(index) for index in range(len(train))]))
    pixels = stacked.contiguous(memory_format=torch.channels_last)
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (spec.mean, spec.std))
    prefix = inference_prefix(here.loaded, cut)

    def read(rows: npt.NDArray[np.int64]) -> torch.Tensor:
        with torch.no_grad():
            photos = changed(pixels[torch.from_numpy(rows)], generator, strength, mean)
            value: torch.Tensor = prefix(photos.float().mul_(1 / (255 * deviation)).sub_(mean / deviation))
        return value

    return TailInputs(read, train.labels)


def changed(pixels: torch.Tensor, generator: np.random.Generator, strength: float, mean: torch.Tensor) -> torch.Tensor:
    """Return photos, each cropped and resized, every other one flipped, and shifted.

    Args:
        pixels: uint8 [n, 3, size, size], channels last.
        generator: Of the draws.
        strength: From 0 to 1, as for stored maps.
        mean: Of the channels, from 0 to 1, float32 [3, 1, 1]: what moves in where a photo is shifted.
    """
    count, _, size, _ = pixels.shape
    area = generator.uniform(1 - (1 - SMALLEST_AREA) * strength, 1, count)
    reach = math.log(WIDEST_ASPECT) * strength
    aspect = np.exp(generator.uniform(-reach, reach, count))
    sides = np.sqrt([area / aspect, area * aspect])
    lengths = np.clip(np.rint(sides * size), 1, size).astype(int)  # [2, n]
    starts = np.floor(generator.random((2, count)) * (size - lengths + 1)).astype(int)
    flips = generator.random(count) < 0.5
    far = math.floor(FARTHEST * strength * size + 0.5)
    shifts = generator.integers(-far, far, (2, count), endpoint=True)
    out = torch.empty_like(pixels)
    out[:] = (255 * mean).round().byte()
    for row in range(count):
        (top, left), (height, width), (down, right) = starts[:, row], lengths[:, row], shifts[:, row]
        crop = pixels[row : row + 1, :, top : top + height, left : left + width]
        whole = functional.interpolate(crop, (size, size), mode="bilinear")[0]
        whole = whole.flip(2) if flips[row] else whole
        (here_y, from_y), (here_x, from_x) = _moved(down, size), _moved(right, size)
        out[row, :, here_y, here_x] = whole[:, from_y, from_x]
    return out


def _moved(by: int, size: int) -> tuple[slice, slice]:
    """Return where elements of an axis move to, and where they come from."""
    return slice(max(0, by), size + min(0, by)), slice(max(0, -by), size - max(0, by))
