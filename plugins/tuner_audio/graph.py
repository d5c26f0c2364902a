"""The featuriser of sounds as an ONNX graph, so that any runtime hears what `tuner_audio.bands.log_mel` does.

The FFT of 512 is two stages of matrix products, 32 × 16 (Cooley and Tukey, 1965): a third of the work of one product,
and a file of 0.1 MB instead of 1.6. It is computed in float64, as in Python: in float32, what a loud tone leaves in
silent bands by rounding is larger than the offset in the logarithm.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.ort.answer import appended, node
from tuner.ort.protobuf import field, integer, parsed, parts_of
from tuner_audio.bands import BANDS, FFT, FRAME, OFFSET, STEP, hann, mel_weights

#: Name of the graph's input, mono at 16 kHz, float32 [samples]; and of its output, float32 [patches, 1, 64, window].
SOUND, PATCHES = "sound", "patches"
_FIRST, _SECOND = 32, 16
#: Columns of the second stage that hold frequencies of a real signal.
_KEPT = _SECOND // 2 + 1
#: Version of the format, and of the operators.
_IR_VERSION, _OPSET = 8, 13
_GRAPH = 7  # of ModelProto
_FLOAT32, _FLOAT64, _INT, _INTS = 1, 11, 2, 7  # of TensorProto.DataType; of AttributeProto.AttributeType


def log_mel_graph(window: int, hop: int) -> bytes:
    """Return an ONNX model from a sound to the patches of its log-mel bands, padded with silence to one patch.

    Args:
        window: Frames of a patch.
        hop: Frames from the begin of one patch to the begin of the next.
    """
    graph = _Graph()
    one, zero = graph.whole(1), graph.whole(0)
    least = graph.whole(FRAME + (window - 1) * STEP)
    missing = graph.node("Max", graph.node("Sub", least, graph.node("Shape", SOUND)), zero)
    # not by Pad: a bundle's file may pad by much less than a patch of the usual length
    sound = graph.node("Concat", SOUND, graph.node("ConstantOfShape", missing), axis=0)
    frames = graph.cut(sound, graph.node("Shape", sound), FRAME, STEP)  # [frames, 400]
    windowed = graph.node("Mul", frames, graph.constant(hann()))
    longer = graph.node("Cast", graph.node("Pad", windowed, graph.whole(0, 0, 0, FFT - FRAME)), to=_FLOAT64)
    blocks = graph.node("Reshape", longer, graph.whole(-1, _FIRST, _SECOND))
    magnitudes = graph.node("Reshape", _magnitudes(graph, blocks), graph.whole(-1, _FIRST * _KEPT))
    mel = graph.node("MatMul", magnitudes, graph.constant(_mel_by_place()))
    bands = graph.node("Log", graph.node("Add", mel, graph.constant(np.array(OFFSET, np.float32))))  # [frames, 64]
    size = graph.node("Slice", graph.node("Shape", bands), zero, one)
    patches = graph.node("Transpose", graph.cut(bands, size, window, hop), perm=(0, 2, 1))  # [patches, 64, window]
    graph.node("Unsqueeze", patches, one, made=PATCHES)
    return graph.model(window)


def _magnitudes(graph: "_Graph", blocks: str) -> str:
    """Return the name of |X| [frames, 32, 9] of X[k + 32 l] = Σₙ W₁₆^(n l) W₅₁₂^(n k) Σₘ x[16 m + n] W₃₂^(m k)."""
    first, second = np.arange(_FIRST), np.arange(_SECOND)
    stages = (
        np.exp(-2j * np.pi * np.outer(first, first) / _FIRST),
        np.exp(-2j * np.pi * np.outer(first, second) / FFT),
        np.exp(-2j * np.pi * np.outer(second, second[:_KEPT]) / _SECOND),
    )
    (c, s), turn, (e, f) = ((graph.constant(part.real), graph.constant(part.imag)) for part in stages)
    real, imaginary = graph.node("MatMul", c, blocks), graph.node("MatMul", s, blocks)
    real, imaginary = graph.product("Mul", (real, imaginary), turn)
    real, imaginary = graph.product("MatMul", (real, imaginary), (e, f))
    squares = graph.node("Add", graph.node("Mul", real, real), graph.node("Mul", imaginary, imaginary))
    return graph.node("Cast", graph.node("Sqrt", squares), to=_FLOAT32)


def _mel_by_place() -> Floats:
    """Return `mel_weights` in the order of the two stages, float32 [32 · 9, 64]; places beyond the half weigh 0."""
    weights = mel_weights()
    frequencies = np.arange(_FIRST)[:, None] + _FIRST * np.arange(_KEPT)
    inside = frequencies.ravel() < len(weights)
    result: Floats = weights[np.minimum(frequencies.ravel(), len(weights) - 1)] * inside[:, None].astype(np.float32)
    return result


class _Graph:
    """A graph that is written node by node; values are numbered."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: dict[str, npt.NDArray[Any]] = {}

    def node(self, operator: str, *inputs: str, made: str | None = None, **attributes: int | Sequence[int]) -> str:
        """Add a node, and return the name of its output."""
        name = made or f"sound.{len(self._nodes)}"
        self._nodes.append(node(operator, inputs, (name,)) + _attributes(attributes))
        return name

    def constant(self, value: npt.NDArray[Any]) -> str:
        """Return the name of a constant."""
        name = f"sound.constant.{len(self._constants)}"
        self._constants[name] = np.ascontiguousarray(value)
        return name

    def whole(self, *values: int) -> str:
        """Return the name of a list of whole numbers."""
        return self.constant(np.array(values, np.int64))

    def cut(self, value: str, size: str, length: int, hop: int) -> str:
        """Return the name of spans of the first axis, [spans, length, ...]; `size` is that of the axis, [1]."""
        one, zero = self.whole(1), self.whole(0)
        last = self.node("Div", self.node("Sub", size, self.whole(length)), self.whole(hop))
        scalars = (self.constant(np.array(0)), self.node("Squeeze", self.node("Add", last, one), zero))
        begins = self.node("Mul", self.node("Range", *scalars, self.constant(np.array(1))), self.whole(hop))
        return self.node(
            "Gather", value, self.node("Add", self.node("Unsqueeze", begins, one), self.whole(*range(length)))
        )

    def product(self, operator: str, ours: tuple[str, str], theirs: tuple[str, str]) -> tuple[str, str]:
        """Return the names of the real and the imaginary part of a complex product."""
        (a, b), (c, d) = ours, theirs
        real = self.node("Sub", self.node(operator, a, c), self.node(operator, b, d))
        return real, self.node("Add", self.node(operator, a, d), self.node(operator, b, c))

    def model(self, window: int) -> bytes:
        """Return the model's file, with the input `SOUND` and the output `PATCHES`."""
        graph = field(2, b"sound") + field(11, _value(SOUND, "samples"))
        graph += field(12, _value(PATCHES, "patches", 1, BANDS, window))
        graph += parts_of(parsed(appended(self._nodes, self._constants, {})), _GRAPH)[0]
        return integer(1, _IR_VERSION) + field(8, field(1, b"") + integer(2, _OPSET)) + field(_GRAPH, graph)


def _value(name: str, *sizes: int | str) -> bytes:
    """Return the ValueInfoProto of a value in float32; an open size has a name."""
    shape = b"".join(field(1, integer(1, size) if isinstance(size, int) else field(2, size.encode())) for size in sizes)
    return field(1, name.encode()) + field(2, field(1, integer(1, _FLOAT32) + field(2, shape)))


def _attributes(given: Mapping[str, int | Sequence[int]]) -> bytes:
    """Return the fields of a node's attributes."""
    found = b""
    for name, value in given.items():
        one = isinstance(value, int)
        numbers = integer(3, value) if isinstance(value, int) else b"".join(integer(8, number) for number in value)
        found += field(5, field(1, name.encode()) + numbers + integer(20, _INT if one else _INTS))
    return found
