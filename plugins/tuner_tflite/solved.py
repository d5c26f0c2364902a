"""A network in int8 whose last layer is solved for: an entry point of the group ``tuner.networks``.

What int8 costs a head is that the features it was solved for are not those that it reads. Here it is solved for on the
features of the network in int8: the layers before it compute in whole numbers, and what comes after the last
convolution, a thousandth of the work, in float32. Where that still costs too much, weights alone are in int8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.ridge.solve import LinearHead
from tuner_tflite.file import to_bytes
from tuner_tflite.graph import Graph, Node
from tuner_tflite.interpreter import Interpreter
from tuner_tflite.model import TfliteModel
from tuner_tflite.quantise import calibrated, quantised
from tuner_tflite.write import Interface, description, float_model, label_lines

Array = npt.NDArray[Any]
HEAD, KIND = "FULLY_CONNECTED", "uint8"
Answer = Callable[[Array], Floats]


def networks(
    nodes: Sequence[tuple[str, tuple[str, ...], tuple[str, ...], Mapping[str, Any]]],
    constants: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    photos: Sequence[Array],
) -> "Iterator[SolvedNetwork]":
    """Yield a network of photos in int8 throughout, and with weights alone in int8.

    Args:
        nodes: Kind, inputs, outputs and attributes of each of its operators, as ONNX has them; the last is a Gemm with
            ``transB``, whose weights are replaced.
        constants: Its weights.
        shapes: Shape of every value, of one photo.
        mean: By channel, what is subtracted of pixels from 0 to 1.
        std: By channel, what they are then divided by.
        photos: Those that ranges are taken from, uint8 [height, width, 3] each.
    """
    graph = Graph(tuple(Node(*one) for one in nodes), constants, shapes, nodes[0][1][0], nodes[-1][2][0])
    face = Interface(mean, std)
    given = float_model(graph, face)
    last = max(row for row, one in enumerate(given.operators) if one.kind == "CONV_2D")
    given.operators[last + 1 :] = [replace(one, exact=True) for one in given.operators[last + 1 :]]
    samples = (photo[None].astype(np.float32) for photo in photos)
    ranges = calibrated(given, to_bytes(given, ""), samples, len(photos), pixels=True)
    for weights_only in (False, True):
        model = quantised(given, {**ranges, given.output: (0.0, 1.0)}, KIND, weights_only=weights_only)
        yield SolvedNetwork(model, face)


@dataclass(frozen=True, slots=True)
class SolvedNetwork:
    """A network in int8, and its file once its last layer is known."""

    model: TfliteModel
    face: Interface

    @property
    def _head(self) -> int:
        """Place of the last layer among the operators."""
        return max(row for row, one in enumerate(self.model.operators) if one.kind == HEAD)

    def features(self) -> Answer:
        """Return what gives the last layer's input for a photo, uint8 [height, width, 3]: float32 [features]."""
        at, model = self._head, self.model
        until = TfliteModel(model.tensors, model.operators[:at], model.input, model.operators[at].inputs[0])
        return self.answers(to_bytes(until, ""))

    def file(self, head: LinearHead, labels: Sequence[str]) -> tuple[bytes, str]:
        """Return the contents of the file with a last layer, and of that with its labels.

        Raises:
            BundleError: A label has a line break.
        """
        tensors = list(self.model.tensors)
        _, *places = self.model.operators[self._head].inputs
        for place, data in zip(places, (head.weight, head.bias), strict=True):
            tensors[place] = replace(tensors[place], data=np.ascontiguousarray(data, np.float32))
        model = TfliteModel(tensors, self.model.operators, self.model.input, self.model.output)
        return to_bytes(model, description(labels, self.face, KIND, model)), label_lines(labels)

    @staticmethod
    def answers(content: bytes) -> Answer:
        """Return what answers to a photo by a file's content: of the whole file, probabilities, float32 [labels]."""
        interpreter = Interpreter(content)

        def answer(photo: Array) -> Floats:
            found: Floats = interpreter.answers(photo[None].astype(np.float32))[0]
            return found

        return answer
