"""A network in int8 whose last layer is solved for: an entry point of the group ``tuner.networks``.

What int8 costs a head is that the features it was solved for are not those that it reads. Here it is solved for on the
features of the network in int8: the layers before it compute in whole numbers, and what comes after the last
convolution, a thousandth of the work, in float32.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
HEAD = "FULLY_CONNECTED"


class SolvedNetwork:
    """A network of photos in int8, and its file once its last layer is known.

    Args:
        nodes: Kind, inputs, outputs and attributes of each of its operators, as ONNX has them; the last is a Gemm with
            ``transB``, whose weights are replaced.
        constants: Its weights.
        shapes: Shape of every value, of one photo.
        mean, std: By channel, how pixels from 0 to 1 are normalised.
        photos: Those that ranges are taken from, uint8 [height, width, 3] each.

    Attributes:
        kind: Numbers of the file's input and output.
    """

    kind = "uint8"

    def __init__(
        self,
        nodes: Sequence[tuple[str, tuple[str, ...], tuple[str, ...], Mapping[str, Any]]],
        constants: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
        mean: tuple[float, ...],
        std: tuple[float, ...],
        photos: Sequence[Array],
    ) -> None:
        graph = Graph(tuple(Node(*one) for one in nodes), constants, shapes, nodes[0][1][0], nodes[-1][2][0])
        self._face = Interface(mean, std)
        given = float_model(graph, self._face)
        last = max(row for row, one in enumerate(given.operators) if one.kind == "CONV_2D")
        given.operators[last + 1 :] = [replace(one, exact=True) for one in given.operators[last + 1 :]]
        samples = (photo[None].astype(np.float32) for photo in photos)
        ranges = calibrated(given, to_bytes(given, ""), samples, len(photos), pixels=True)
        self._model = quantised(given, {**ranges, given.output: (0.0, 1.0)}, self.kind)
        self._head = next(row for row, one in enumerate(self._model.operators) if one.kind == HEAD)
        head = self._model.operators[self._head]
        until = TfliteModel(self._model.tensors, self._model.operators[: self._head], self._model.input, head.inputs[0])
        #: What the last layer reads of a photo, uint8 [height, width, 3]: float32 [features].
        self.features = self.answerer(to_bytes(until, ""))

    def file(self, head: LinearHead, labels: Sequence[str]) -> tuple[bytes, str]:
        """Return the contents of the file with a last layer, and of that with its labels.

        Raises:
            BundleError: A label has a line break.
        """
        tensors = list(self._model.tensors)
        _, *places = self._model.operators[self._head].inputs
        for place, data in zip(places, (head.weight, head.bias), strict=True):
            tensors[place] = replace(tensors[place], data=np.ascontiguousarray(data, np.float32))
        model = TfliteModel(tensors, self._model.operators, self._model.input, self._model.output)
        return to_bytes(model, description(labels, self._face, self.kind, model)), label_lines(labels)

    @staticmethod
    def answerer(content: bytes) -> Callable[[Array], Floats]:
        """Return what answers to a photo by a file's content: probabilities, float32 [labels]."""
        interpreter = Interpreter(content)

        def answer(photo: Array) -> Floats:
            found: Floats = interpreter.answers(photo[None].astype(np.float32))[0]
            return found

        return answer
