"""Inputs of a conformance set: made by rule, so that a set holds nothing of anyone's data."""

import io

import numpy as np
from PIL import Image

from tuner.arrays import Array, Floats
from tuner.bundle.format import Bundle

SAMPLES = 4
#: Multipliers of the noise: Knuth's for elements, two odd numbers for steps and inputs.
OF_ELEMENT, OF_STEP, OF_PORT = 2_654_435_761, 40_503, 97


def made_samples(bundle: Bundle) -> Array:
    """Return samples of a bundle's input shape [n, ...]: smooth colours as uint8 for images, else float32."""
    generator, shape = np.random.default_rng(0), bundle.input_shape
    if bundle.input.kind != "images":
        scales = (np.asarray(bundle.input.std or (1.0,)), np.asarray(bundle.input.mean or (0.0,)))
        deviation, mean = (one.reshape(-1, *(1,) * (len(shape) - 1)) for one in scales)
        samples: Array = generator.standard_normal((SAMPLES, *shape)) * deviation + mean
        return samples.astype(np.float32)
    pictures = [made_picture(shape[2], shape[1], number).transpose(2, 0, 1) for number in range(SAMPLES)]
    return np.ascontiguousarray(np.stack(pictures))


def made_sound() -> Floats:
    """Return two and a half seconds of a loud rising tone with a little noise, float32 [samples], at 16 kHz."""
    seconds = np.arange(40_000) / 16_000
    noise = np.random.default_rng(0).normal(0, 1e-4, len(seconds))
    return (0.9 * np.sin(2 * np.pi * (150 + 1200 * seconds) * seconds) + noise).astype(np.float32)


def made_picture(width: int, height: int, number: int) -> Array:
    """Return a picture of waves and noise, uint8 [height, width, 3]."""
    generator = np.random.default_rng(number)
    y, x = np.mgrid[:height, :width] / max(width, height)
    phases, speeds = generator.uniform(0, 6, 3), generator.uniform(4, 30, (3, 2))
    waves = np.stack([np.sin(phase + a * x + b * y) for phase, (a, b) in zip(phases, speeds, strict=True)], -1)
    noisy = 127 + 100 * waves + generator.normal(0, 12, waves.shape)
    picture: Array = np.clip(noisy, 0, 255).astype(np.uint8)
    return picture


def made_files(bundle: Bundle) -> dict[str, bytes]:
    """Return pictures by file name: smaller and larger than the model's input, wide and high, PNG and JPEG."""
    side = bundle.input.resize or bundle.input.size or 1
    sizes = {
        "same.png": (side, side),
        "wide.png": (2 * side + 5, side + 2),
        "high.png": (max(1, side // 2) + 1, side + 7),
        "large.jpg": (3 * side + 1, 4 * side),
    }
    return {name: _encoded(made_picture(*size, number), name) for number, (name, size) in enumerate(sizes.items())}


def _encoded(pixels: Array, name: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG" if name.endswith("png") else "JPEG", quality=92)
    return file.getvalue()


class RuledNoise:
    """Noise of dropouts that every language can compute; see ``docs/bundle.md``.

    Args:
        ports: Number of noise inputs of the step.
    """

    def __init__(self, ports: int) -> None:
        self._ports, self._drawn = max(1, ports), 0

    def random(self, *, dtype: type[np.float32], out: Floats) -> object:  # noqa: ARG002 - as numpy's generator
        """Fill `out` for the next input: of 32 bits, the upper 24."""
        step, port = divmod(self._drawn, self._ports)
        self._drawn += 1
        mixed = np.arange(out.size, dtype=np.uint64) * OF_ELEMENT + (step + 1) * OF_STEP + port * OF_PORT
        out[...] = (((mixed & 0xFFFFFFFF) >> 8) / 2**24).reshape(out.shape)
        return out
