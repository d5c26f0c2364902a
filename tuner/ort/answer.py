"""A model's answer as part of the model: nodes for probabilities, label and confidence, after its logits.

A message of protocol buffers that is appended to another is merged into it: its lists become longer, and messages
within it are merged in turn. So these nodes are appended to a file's content when it is opened. Bundles of every
version have them, and a temperature stays where it was: in ``bundle.json``.

Field numbers are those of onnx.proto3 (ONNX 1.18, IR version 10); the operators are in every operator set since 11.
"""

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError, first_line
from tuner.ort.protobuf import field, integer, joined, parsed
from tuner.ort.session import LOGITS
from tuner.targets import Targets

#: Probability of each label, float32 [n, labels]; and the confidence, float32 [n, 1].
PROBABILITIES, CONFIDENCE = ANSWER = "answer.probabilities", "answer.confidence"
#: What an exit's confidence is found from by comparing it with the exit before, float32 [n, labels]: of numbers.
COMPARED = _SCALED = "answer.scaled"
#: How unlike the user's samples a sample is, float32 [n, 1]: see `tuner.ort.unknown`.
DISTANCE = "answer.distance"
_TEMPERATURE = "answer.temperature"
_GRAPH, _NODE, _INITIALISER, _OUTPUT = 7, 1, 5, 12  # of ModelProto; of GraphProto
_TYPES = {"float32": 1, "int64": 7, "float64": 11}  # of TensorProto.DataType
#: From a ValueInfoProto to its shape: the numbers of fields.
SHAPE = (2, 1, 2)
_INT = 2  # of AttributeProto.AttributeType


def with_answer(path: Path, labels: int, temperature: float, kind: Targets, more: bytes = b"") -> bytes:
    """Return the content of a file with logits, float32 [n, labels], with its answer (`ANSWER`) as further outputs.

    Numbers have `COMPARED` too. `more` is what else is appended: a message as `appended` returns.

    The confidence is the largest probability; of a sigmoid, the mean of max(p, 1 − p). Values take the place of
    probabilities where there are no classes; the confidence is the sum of their sizes: at least 0 if all are numbers.

    Raises:
        BundleError: The file cannot be read.
    """
    constants: dict[str, npt.NDArray[Any]] = {_TEMPERATURE: np.array(temperature, np.float32)}
    outputs = dict.fromkeys(ANSWER, "float32")
    nodes = [node("Div", (LOGITS, _TEMPERATURE), (_SCALED,)), *_values(constants, kind)]
    if kind.scale is not None:
        size, ones = "answer.size", "answer.ones"
        constants[ones], outputs[COMPARED] = np.ones((labels, 1), np.float32), "float32"
        nodes += [node("Abs", (PROBABILITIES,), (size,)), node("MatMul", (size, ones), (CONFIDENCE,))]
    elif kind.activation == "Sigmoid":
        size, certainty, share = "answer.size", "answer.certainty", "answer.share"
        mean, most = "answer.mean", "answer.most"
        constants |= {share: np.full((labels, 1), 1 / labels, np.float32), most: np.ones(1, np.float32)}
        nodes += [
            node("Abs", (_SCALED,), (size,)),
            node("Sigmoid", (size,), (certainty,)),
            node("MatMul", (certainty, share), (mean,)),
            node("Min", (mean, most), (CONFIDENCE,)),  # a rounded mean of ones may be above 1
        ]
    else:
        constants["answer.one"] = np.ones(1, np.int64)
        nodes.append(node("TopK", (PROBABILITIES, "answer.one"), (CONFIDENCE, "answer.label")))
    answer = appended(nodes, constants, outputs)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return b"".join((content, answer, more))  # in memory once
    except (OSError, ValueError) as error:  # a file without content cannot be mapped
        raise BundleError(f"{path} cannot be read ({first_line(error)}): export again") from None


def appended(nodes: Sequence[bytes], constants: Mapping[str, npt.NDArray[Any]], outputs: Mapping[str, str]) -> bytes:
    """Return the message that adds nodes to a model's content; `outputs` have the type of each further output."""
    parts = [field(_NODE, one) for one in nodes]
    parts += [field(_INITIALISER, tensor(name, value)) for name, value in constants.items()]
    parts += [field(_OUTPUT, _output(name, dtype)) for name, dtype in outputs.items()]
    return field(_GRAPH, b"".join(parts))


def _values(constants: dict[str, npt.NDArray[Any]], kind: Targets) -> list[bytes]:
    """Return the nodes from logits to probabilities, or to values, whose constants are added."""
    if kind.scale is None:
        return [node(kind.activation, (_SCALED,), (PROBABILITIES,))]
    factor, summand, product = "answer.factor", "answer.summand", "answer.product"
    constants |= {factor: np.array(kind.scale.std, np.float32), summand: np.array(kind.scale.mean, np.float32)}
    return [node("Mul", (_SCALED, factor), (product,)), node("Add", (product, summand), (PROBABILITIES,))]


def node(operator: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bytes:
    """Return a node's message."""
    parts = [field(1, name.encode()) for name in inputs] + [field(2, name.encode()) for name in outputs]
    parts += [field(3, f"{outputs[0]}.node".encode()), field(4, operator.encode())]
    if operator == "Softmax":  # its axis is another one by default in operator sets before 13
        parts.append(field(5, field(1, b"axis") + integer(3, 1) + integer(20, _INT)))
    return b"".join(parts)


def tensor(name: str, value: npt.NDArray[Any]) -> bytes:
    """Return the message of a tensor, such as an initialiser."""
    extents = b"".join(integer(1, extent) for extent in value.shape)
    return extents + integer(2, _TYPES[value.dtype.name]) + field(8, name.encode()) + field(9, value.tobytes())


def _output(name: str, dtype: str) -> bytes:
    return field(1, name.encode()) + field(2, field(1, integer(1, _TYPES[dtype])))


def with_size(value: bytes, axis: int, size: bytes) -> bytes:
    """Return a ValueInfoProto, an input or an output, with another size of one axis: a field of its Dimension.

    One that declares no shape stays as it is.
    """

    def changed(content: bytes, path: tuple[int, ...]) -> bytes:
        parts, wanted = parsed(content), path[0] if path else 1
        places = [at for at, (number, _) in enumerate(parts) if number == wanted]
        if not places:
            return content
        at = places[0 if path else axis]
        inner = parts[at][1]
        parts[at] = wanted, changed(inner, path[1:]) if path and isinstance(inner, bytes) else size
        return joined(parts)

    return changed(value, SHAPE)
