"""What a task says about its model and its input: frozen data, no files opened."""

from dataclasses import dataclass
from typing import Any, Literal

from tuner.errors import TaskError

Kind = Literal["images", "arrays", "signals"]


@dataclass(frozen=True, slots=True)
class Pretrain:
    """Train the whole model on the global training set once, before the study; the backend keeps the result."""

    epochs: int
    learning_rate: float
    batch_size: int = 64


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which network, and which weights it starts from.

    Attributes:
        factory: ``"package.module:callable"`` or ``"/absolute/net.py:callable"``.
        arguments: Keyword arguments of the factory, sorted by name.
        weights: Absolute path of a weights file, a torchvision weights name kept as it is, or None.
        pretrain: How to train the model before the study, for models that come without weights.
        head: Labels of the rows the weights were saved with, where these are not the factory's own (a bundle's).
    """

    factory: str
    arguments: tuple[tuple[str, Any], ...] = ()
    weights: str | None = None
    pretrain: Pretrain | None = None
    head: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputSpec:
    """How one sample becomes the model's input; training and inference share it.

    Attributes:
        kind: ``"images"`` are decoded, resized and cropped; ``"arrays"`` are used as they are unless `size` is given;
            ``"signals"`` [channels, time] are cut into windows.
        size: Side of the square the model sees, in pixels.
        resize: Short side before the centre crop, in pixels; None means `size`.
        mean: Subtracted from each channel: one value a channel, one for all, or none.
        std: Divides each channel after that; same lengths.
        window: Samples of a signal's window; None takes each recording whole.
        hop: Samples from one window's begin to the next; None means `window`, so that windows do not overlap.
    """

    kind: Kind
    size: int | None = None
    resize: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    window: int | None = None
    hop: int | None = None

    def __post_init__(self) -> None:
        if self.size is None and (self.kind == "images" or (self.kind == "arrays" and self.resize is not None)):
            raise TaskError(f"input.size is needed for kind {self.kind!r}: give the side in pixels, e.g. size = 160")
        if self.size is not None and self.size < 1:
            raise TaskError(f"input.size wants at least 1 pixel, got {self.size}")
        if self.size is not None and self.resize is not None and self.resize < self.size:
            raise TaskError(
                f"input.resize wants at least input.size = {self.size}, got {self.resize}: "
                "the crop is cut out of the resized image"
            )
        signals = self.kind == "signals"
        strange = ("size", "resize") if signals else ("window", "hop")
        said = next((key for key in strange if getattr(self, key) is not None), None)
        if said is not None:
            way_out = "give input.window" if signals else 'leave it out, or set kind = "signals"'
            raise TaskError(f"input.{said} = {getattr(self, said)} means nothing for kind {self.kind!r}: {way_out}")
        if self.hop is not None and self.window is None:
            raise TaskError(
                f"input.hop = {self.hop} wants input.window: give both, or neither to take recordings whole"
            )
        if min(self.window or 1, self.hop or 1) < 1:
            raise TaskError(f"input.window and input.hop want at least 1 sample, got {self.window} and {self.hop}")
        if any(value <= 0 for value in self.std):
            raise TaskError(f"input.std wants values above 0, got {list(self.std)}")
