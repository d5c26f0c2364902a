"""What a task file says about model and input, as frozen data; no file is opened."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tuner.arrays import Array, Floats
from tuner.errors import TaskError

#: Labels of a sample by one name that stands for them all.
LabelMap = tuple[tuple[str, tuple[str, ...]], ...]
#: Libraries that publish models by name: ``timm:NAME``, ``hf:NAME-OR-FOLDER``.
LIBRARIES = ("timm", "hf")
#: In front of the names of timm's models.
TIMM = "timm:"
#: Group of the entry points of what opens a file that is the whole model; their names are the files' endings.
MODEL_FILES = "tuner.model_files"
#: Pixels of a side of the model's input, and of the short side before the crop.
MOST_SIDE = 8192
#: Value of the brightest pixel.
PIXEL_MOST = 255


def lacks_tag(factory: str) -> bool:
    """Return whether a factory is ``timm:NAME`` without a tag, which is a network without weights."""
    return factory.startswith(TIMM) and "." not in factory


@dataclass(frozen=True, slots=True)
class Pretrain:
    """Training of the whole model on the global training set, once before the study; the backend keeps the result.

    Attributes:
        epochs: Passes over the global training samples.
        learning_rate: Learning rate at the first step.
        batch_size: Samples per step.
        is_preview: Whether nothing is trained: weights that are kept are used, else the model is as it was built.
    """

    epochs: int
    learning_rate: float
    batch_size: int = 64
    is_preview: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The network, and the weights it starts from.

    Attributes:
        factory: Function that builds it: ``"package.module:callable"`` or ``"/absolute/net.py:callable"``; or the name
            of a published model: ``"timm:NAME"``, ``"hf:OWNER/NAME"``, ``"hf:/absolute/folder"``; or a file that is the
            whole model, after its ending: ``"onnx:/absolute/model.onnx"``.
        arguments: Keyword arguments of the factory, sorted by name.
        weights: Absolute path of a weights file, name of torchvision weights, or None.
        pretrain: Training before the study, for models that come without weights.
        head: Labels of the rows the weights were saved with, where these are not the factory's own (a bundle's).
        input: Name of the argument that takes the samples; None for the first one.
        output: Name, or number, of the output that holds the logits; None where there is no choice. Of a model file
            also a value within it, on which a new head is put.
    """

    factory: str
    arguments: tuple[tuple[str, Any], ...] = ()
    weights: str | None = None
    pretrain: Pretrain | None = None
    head: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None

    @property
    def source(self) -> tuple[str, str] | None:
        """Library and name of a published model, or ending and path of a file; None where the factory is a function."""
        kind, _, name = self.factory.partition(":")
        is_source = name != "create_model" if kind in LIBRARIES else kind.isalnum() and name.startswith("/")
        return (kind, name) if is_source else None

    @property
    def is_file(self) -> bool:
        """Whether a file is the whole model."""
        return self.source is not None and self.source[0] not in LIBRARIES

    @property
    def name(self) -> str:
        """Name of the model in reports."""
        last = self.factory.rpartition(":")[2]
        return last if self.source is None else last.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class InputDefaults:
    """How images are prepared for a published model, by its own configuration; the fields are those of `InputSpec`.

    Attributes:
        caution: Line on what is prepared in another way all the same; empty for nothing.
    """

    size: int
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    caution: str = ""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """How one sample becomes the model's input, in training and inference alike.

    Attributes:
        kind: Kind of the samples. ``"images"`` are decoded, resized and cropped; ``"arrays"`` are used as they are
            unless `size` is given; ``"signals"`` [channels, time] are cut into windows; plugins add others.
        size: Side of the square the model sees, in pixels.
        resize: Short side before the centre crop, in pixels; None means `size`.
        mean: Values subtracted from the channels: one per channel, one for all, or none.
        std: Values the channels are divided by after that; same lengths.
        window: Length of a signal's window, in samples; None takes each recording whole.
        hop: Distance between the starts of two windows, in samples; None means `window`: no overlap.
        columns: Names of the numbers of a sample, or of its channels, as a table or an encoder of samples gives them.
    """

    kind: str
    size: int | None = None
    resize: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    window: int | None = None
    hop: int | None = None
    columns: tuple[str, ...] = ()

    def at(self, size: int) -> "InputSpec":
        """Return the settings for another size, of which the crop takes as large a part.

        Raises:
            TaskError: Samples have no size in pixels, or it is none.
        """
        if self.size is None:
            raise TaskError(f"input.size is not given, and samples of kind {self.kind!r} have no other size")
        return replace(self, size=size, resize=self.resize and max(size, round(self.resize * size / self.size)))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them; `columns` only where there are any, as they came later."""
        content = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return content if content["columns"] else {name: content[name] for name in content if name != "columns"}

    def __post_init__(self) -> None:
        for key, side in (("size", self.size), ("resize", self.resize)):
            if side is not None and not 1 <= side <= MOST_SIDE:
                raise TaskError(f"input.{key} must be from 1 to {MOST_SIDE} pixels, got {side}")
        if self.size is not None and self.resize is not None and self.resize < self.size:
            raise TaskError(
                f"input.resize must be at least input.size = {self.size}, got {self.resize}: "
                "the crop is cut out of the resized image"
            )
        if self.hop is not None and self.window is None:
            raise TaskError(
                f"input.hop = {self.hop} requires input.window: give both, or neither to take recordings whole"
            )
        if any(value is not None and value < 1 for value in (self.window, self.hop)):
            raise TaskError(f"input.window and input.hop must be at least 1 sample, got {self.window} and {self.hop}")
        if any(value <= 0 for value in self.std):
            raise TaskError(f"input.std must be above 0 in every channel, got {list(self.std)}")


def normalise(batch: Array, spec: InputSpec) -> Floats:
    """Make a batch the model's input: ``(x / 255 - mean) / std`` for uint8, ``(x - mean) / std`` for all else.

    The batch is of any numeric type; the result is float32, and both are [n, C, ...].
    """
    out = batch.astype(np.float32)
    if batch.dtype == np.uint8:
        out /= np.float32(PIXEL_MOST)
    if spec.mean:
        out -= _per_channel("mean", spec.mean, out)
    if spec.std:
        out /= _per_channel("std", spec.std, out)
    return out


def _per_channel(key: str, values: tuple[float, ...], batch: Floats) -> Floats:
    channels = batch.shape[1]
    if len(values) not in {1, channels}:
        raise TaskError(f"input.{key} must have 1 or {channels} values, got {len(values)}: give one per channel")
    return np.asarray(values, np.float32).reshape(1, -1, *(1,) * (batch.ndim - 2))
