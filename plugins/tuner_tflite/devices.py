"""Which operators of a written file do not fit a device.

Coral's Edge TPU: the table of supported operations of https://coral.ai/docs/edgetpu/models-intro, read in the copy for
cameras with an Edge TPU, https://developer.axis.com/computer-vision/on-device/system-on-chip/artpec-7/supported-ops/,
up to ResizeBilinear. The operators whose names come after it in the alphabet were not compared with a copy. All that
such an operator reads and writes is in 8 bits; what comes after one that does not fit runs on the host's processor.

Microcontrollers: the operators that ``MicroMutableOpResolver`` of tensorflow/tflite-micro can register
(tensorflow/lite/micro/micro_mutable_op_resolver.h, of 2025). A model with another one cannot be loaded.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tuner.errors import BundleError
from tuner_tflite.model import Operator, TfliteModel

#: Operators of the Edge TPU that are written here.
EDGETPU = frozenset({
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LOGISTIC", "MAXIMUM",
    "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "PAD", "QUANTIZE", "REDUCE_MAX", "RELU", "RELU6", "RELU_N1_TO_1",
    "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "RSQRT", "SOFTMAX", "STRIDED_SLICE", "SUB", "SUM", "TANH",
    "TRANSPOSE",
})  # fmt: skip
#: Operators that are written here and that a microcontroller cannot register.
NOT_MICRO = frozenset({"GELU", "POW", "RELU_N1_TO_1"})


def fits_edgetpu(model: TfliteModel, one: Operator) -> bool:
    """Return whether an Edge TPU can run an operator."""
    tensors = [model.tensors[number] for number in one.inputs if number >= 0]
    output, options = model.tensors[one.output], one.options
    constant = [own.data for own in tensors[1:] if own.data is not None]
    if one.kind not in EDGETPU or any(own.dtype == "float32" for own in (*tensors, output)):
        return False
    fits: Any = True
    match one.kind:
        case "AVERAGE_POOL_2D" | "MAX_POOL_2D":
            fits = not options.get("fusedActivationFunction", 0)
        case "CONCATENATION":
            fits = not constant
        case "CONV_2D" | "DEPTHWISE_CONV_2D":
            fits = options["dilationHFactor"] == options["dilationWFactor"]
        case "FULLY_CONNECTED" | "SOFTMAX":
            fits = prod(output.shape[:-1]) == 1
        case "STRIDED_SLICE":
            fits = (constant[2] == 1).all()
        case "MEAN" | "SUM" | "REDUCE_MAX":
            fits = 0 not in constant[0]
        case "PAD":
            fits = not constant[0][0].any()
        case "TRANSPOSE":
            fits = constant[0][0] == 0
    return bool(fits)


#: What says whether an operator fits, by the name of a device.
DEVICES: Mapping[str, Callable[[TfliteModel, Operator], bool]] = {
    "edgetpu": fits_edgetpu,
    "micro": lambda _, one: one.kind not in NOT_MICRO,
}


def fitted(model: TfliteModel, device: str) -> list[str]:
    """Return lines on the operators of a model that do not fit a device.

    Raises:
        BundleError: The device cannot run the model at all.
    """
    fits = DEVICES[device]
    others = [row for row, one in enumerate(model.operators) if not fits(model, one)]
    total = len(model.operators)
    if not others:
        return [f"  for {device}: all {total} operators fit"]
    counts = Counter(model.operators[row].kind for row in others)
    names = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if device == "micro":
        raise BundleError(
            f"--for micro: TFLite Micro has no {', '.join(sorted(counts))}: export without --for for a device with "
            "LiteRT, or take another network"
        )
    if others[0] == 0:
        raise BundleError(
            f"--for edgetpu: no operator can run there, as the first one does not fit ({names}): export without --for, "
            "or take another network"
        )
    return [
        f"  for edgetpu: {len(others)} of {total} operators do not fit: {names}",
        f"  its compiler takes the first {others[0]} operators, the host's processor runs the rest",
    ]
