"""A bundle's network as a TFLite model in float32, from the input that programs have to the answers that they read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.arrays import Floats
from tuner.errors import BundleError
from tuner_tflite.graph import Graph
from tuner_tflite.layout import Values
from tuner_tflite.model import TfliteModel, activated
from tuner_tflite.operators.convert import convert, put_input

#: Largest value of a pixel.
WHITE = 255.0


@dataclass(frozen=True, slots=True)
class Interface:
    """What goes into a file's model, and what comes out.

    Attributes:
        mean: By channel, what is subtracted of pixels from 0 to 1; None for inputs that are no pixels.
        std: By channel, what they are then divided by.
        ending: ``SOFTMAX`` or ``LOGISTIC``, which makes probabilities of logits; empty for values.
    """

    mean: tuple[float, ...] | None
    std: tuple[float, ...] = ()
    ending: str = "SOFTMAX"

    @property
    def takes_pixels(self) -> bool:
        """Whether the input is an image of pixels from 0 to 255, [1, height, width, channels]."""
        return self.mean is not None

    def raw(self, batch: Floats) -> Floats:
        """Return normalised inputs, float32 [n, ...], as the file's model takes them."""
        if self.mean is None:
            return batch
        mean, std = (np.array(own, np.float32).reshape(-1, 1, 1) for own in (self.mean, self.std))
        pixels = np.rint((batch * std + mean) * WHITE)
        return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1), np.float32)


def interface(kind: str, mean: tuple[float, ...], std: tuple[float, ...], channels: int, ending: str) -> Interface:
    """Return the interface of a model of samples of a kind, with the bundle's normalisation."""
    if kind != "images":
        return Interface(None, (), ending)
    means, stds = (np.broadcast_to(own or default, channels) for own, default in ((mean, 0), (std, 1)))
    return Interface(tuple(map(float, means)), tuple(map(float, stds)), ending)


def float_model(graph: Graph, interface: Interface) -> TfliteModel:
    """Return a graph as a TFLite model in float32 for one sample.

    Raises:
        BundleError: An operator is not one that is written.
    """
    values = Values(graph)
    model, shape = values.model, graph.shapes[graph.input]
    if interface.mean is None:
        model.input = model.tensor("input", shape)
        put_input(values, graph.input, model.input, image=False)
    else:
        sizes = (1, *shape[2:], shape[1])
        model.input = model.tensor("pixels", sizes)
        mean, std = (np.array(own, np.float32) for own in (interface.mean, interface.std))
        weights = (1 / (WHITE * std)).reshape(1, 1, 1, -1)
        constants = [model.constant(own.astype(np.float32), "normalisation") for own in (weights, -mean / std)]
        options: dict[str, Any] = {"padding": 1, "strideH": 1, "strideW": 1, "depthMultiplier": 1}
        options |= {"dilationHFactor": 1, "dilationWFactor": 1}
        normal = model.add("DEPTHWISE_CONV_2D", (model.input, *constants), sizes, "normalised", **options)
        put_input(values, graph.input, normal, image=True)
    convert(graph, values)
    return finish(values, graph, interface)


def finish(values: Values, graph: Graph, interface: Interface) -> TfliteModel:
    """Return the model of a graph that was converted, with its ending."""
    model = values.model
    model.output = values.get(graph.output)
    if interface.ending:
        options: dict[str, Any] = {"beta": 1.0} if interface.ending == "SOFTMAX" else {}
        model.output = model.add(interface.ending, (model.output,), graph.shapes[graph.output], "answer", **options)
    return activated(model)


def label_lines(labels: Sequence[str]) -> str:
    """Return labels one a line; a BundleError where one has a line break."""
    if (torn := next((label for label in labels if label.splitlines() != [label]), None)) is not None:
        raise BundleError(f"a TFLite file's labels are one a line, but there is {torn!r}: rename it")
    return "".join(f"{label}\n" for label in labels)


def description(labels: Sequence[str], face: Interface, kind: str, model: TfliteModel) -> str:
    """Return what a program must know of a file, as JSON: it is in the file too."""
    ends: dict[str, dict[str, Any]] = {}
    for name, number in (("input", model.input), ("output", model.output)):
        own = model.tensors[number]
        ends[name] = {"shape": list(own.shape), "dtype": own.dtype}
        if own.scale is not None:
            ends[name] |= {"scale": own.scale.scales[0], "zero_point": own.scale.zero}
    ends["input"]["values"] = "RGB pixels from 0 to 255" if face.takes_pixels else "a sample as the ONNX model takes it"
    ends["output"]["values"] = "probabilities" if face.ending else "values"
    inside = {"mean": list(face.mean), "std": list(face.std)} if face.mean is not None else None
    about = {"kind": kind, **ends, "normalised_inside": inside, "labels": list(labels)}
    return json.dumps(about, ensure_ascii=False)
