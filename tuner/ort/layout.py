"""What goes into a written training step and comes out of it. Needs no library."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError

FORMAT = 1
#: ONNX Runtime's names of the types of a step's inputs and outputs.
ORT_TYPES = {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    "float16": "tensor(float16)",
    "int64": "tensor(int64)",
    "int32": "tensor(int32)",
    "uint8": "tensor(uint8)",
    "bool": "tensor(bool)",
}
MOST_ELEMENTS = 2**28  # of one buffer: 1 GiB of float32


class StepFileError(TunerError):
    """A file is not a training step, or not one for these weights or batches."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a step.

    Attributes:
        name: Unique among inputs or among outputs; for a parameter or buffer its key in the tail's state dictionary.
        kind: `input`, `label`, `teacher` (the given model's logits), `sample_weight`, `learning_rate`, `step_count`
            (Adam's, 1 at the first step), `share` (a part's of its batch's weight), `noise` (of a dropout: uniform in
            [0, 1), drawn anew every step), `parameter`, `buffer`, `state` (of the optimiser, or a sum of gradients; 0
            at the first step); `loss` for that output.
        shape: Shape, with the batch where there is one.
        dtype: numpy's name of the type: ``"float32"``.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What a step file's inputs mean; and by an output's name, the input that it replaces in the next step."""

    inputs: tuple[Port, ...]
    updates: Mapping[str, str]

    @property
    def batch_size(self) -> int:
        """Samples a step."""
        return self.only("input").shape[0]

    def only(self, kind: str) -> Port:
        """Return the one input of a kind, which a step must have."""
        for port in self.inputs:
            if port.kind == kind:
                return port
        raise StepFileError(f"a training step must have an input of kind {kind!r}: export it again")


def layout_of(path: Path, session: Any) -> Layout:
    """Read what a file's inputs mean from its metadata, which must be what the file itself says of them.

    Buffers are made by the metadata, and read and written by the file: were one smaller, other memory would be.

    Raises:
        StepFileError: It says nothing of them, or in another version's format, or something else than the file.
    """
    try:
        about = json.loads(session.get_modelmeta().custom_metadata_map.get("tuner.step", "{}"))
        if about.get("format") != FORMAT:
            held = f"format {about['format']}" if "format" in about else "none"
            raise StepFileError(
                f"a training step of format {FORMAT} is wanted, but {path} holds {held:.40}: export it again"
            )
        ports = tuple(Port(**{**port, "shape": tuple(port["shape"])}) for port in about["inputs"])
        layout = Layout(ports, {str(output): str(name) for output, name in about["updates"].items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StepFileError(f"{path} says {error!r:.80} of its inputs: export it again") from None
    values = {value.name: value for value in session.get_inputs()}
    names = [port.name for port in ports]
    if len(set(names)) < len(names) or not set(values) <= set(names) or not set(layout.updates.values()) <= set(names):
        raise StepFileError(f"{path} says of other inputs than it has what they mean: export it again")
    for port in ports:
        require_buffer(path, values.get(port.name), port.shape, port.dtype)
    return layout


def require_buffer(path: Path, value: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Check that a buffer has the size and type of what a file reads or writes there.

    Args:
        path: The file.
        value: What ONNX Runtime says of its input or output; None where the file does without it.
        shape: Shape of the buffer; the file's may have other dimensions, but as many elements.
        dtype: numpy's name of its type.
    """
    sizes = shape if value is None else tuple(value.shape)
    is_sized = all(type(size) is int and size >= 0 for size in (*shape, *sizes))
    if not is_sized or dtype not in ORT_TYPES or not math.prod(shape) == math.prod(sizes) <= MOST_ELEMENTS:
        raise StepFileError(f"{path} has a value of shape {list(sizes)} for {dtype} {list(shape)}: export it again")
    if value is not None and value.type != ORT_TYPES[dtype]:
        raise StepFileError(f"{path} has a value of type {value.type} for {dtype}: export it again")
