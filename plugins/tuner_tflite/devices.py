"""Which operators of a written file do not fit a device.

Coral's Edge TPU: the table of supported operations of https://coral.ai/docs/edgetpu/models-intro. No copy of the whole
page was found. The table was read up to ResizeBilinear in the copy for cameras with an Edge TPU,
https://developer.axis.com/computer-vision/on-device/system-on-chip/artpec-7/supported-ops/, and from there to
StridedSlice, with Sub and Tanh, in an older one (dgist-datalab/Datalab_Intern, Edge_TPU/convert_model_for_Edge_TPU.md).
Transpose is in neither: version 16 of the compiler calls it supported (google-coral/edgetpu, issue 433), 14 and
15 do not. All that such an operator reads and writes is in 8 bits, and only the last three axes may be longer than 1;
what comes after one that does not fit runs on the host's processor.

Microcontrollers: the operators that ``MicroMutableOpResolver`` of tensorflow/tflite-micro can register
(tensorflow/lite/micro/micro_mutable_op_resolver.h, of 2025). A model with another one cannot be loaded.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tuner.errors import BundleError
from tuner_tflite.model import Array, Operator, Tensor, TfliteModel

#: Operators of the Edge TPU that are written here.
EDGETPU = frozenset({
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LOGISTIC", "MAXIMUM",
    "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "PAD", "QUANTIZE", "REDUCE_MAX", "RELU", "RELU6", "RELU_N1_TO_1",
    "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SOFTMAX", "STRIDED_SLICE", "SUB", "TANH", "TRANSPOSE",
})  # fmt: skip
#: Axes of a tensor that may be longer than 1, most values of a softmax, and what a mean of channels is a multiple of.
MOST_AXES, MOST_SOFTMAX, OF_CHANNELS = 3, 16_000, 4
#: Operators that are written here and that a microcontroller cannot register.
NOT_MICRO = frozenset({"GELU", "POW", "RELU_N1_TO_1"})


@dataclass(frozen=True, slots=True)
class _Use:
    """An operator with its tensors: those it reads, the constants after the first of them, and the one it writes."""

    options: Mapping[str, Any]
    read: Sequence[Tensor]
    constants: Sequence[Array]
    written: Tensor


def _is_unfused(own: _Use) -> bool:
    return not own.options.get("fusedActivationFunction", 0)


def _is_evenly_dilated(own: _Use) -> bool:
    return bool(own.options["dilationHFactor"] == own.options["dilationWFactor"])


def _is_row(own: _Use) -> bool:
    return prod(own.written.shape[:-1]) == 1


def _is_short_row(own: _Use) -> bool:
    return _is_row(own) and own.written.shape[-1] <= MOST_SOFTMAX


def _keeps_samples(own: _Use) -> bool:
    return 0 not in own.constants[0]


def _is_mean(own: _Use) -> bool:
    shape = own.read[0].shape
    return _keeps_samples(own) and (len(shape) - 1 not in own.constants[0] or shape[-1] % OF_CHANNELS == 0)


#: What an operator's settings and tensors must be, where not all will do.
LIMITS: Mapping[str, Callable[[_Use], bool]] = {
    "AVERAGE_POOL_2D": _is_unfused,
    "CONCATENATION": lambda own: not own.constants,
    "CONV_2D": _is_evenly_dilated,
    "DEPTHWISE_CONV_2D": _is_evenly_dilated,
    "FULLY_CONNECTED": _is_row,
    "MAX_POOL_2D": _is_unfused,
    "MEAN": _is_mean,
    "PAD": lambda own: not own.constants[0][0].any(),
    "REDUCE_MAX": _keeps_samples,
    "SOFTMAX": _is_short_row,
    "STRIDED_SLICE": lambda own: bool((own.constants[2] == 1).all()),
    "TRANSPOSE": lambda own: bool(own.constants[0][0] == 0),
}


def fits_edgetpu(model: TfliteModel, one: Operator) -> bool:
    """Return whether an Edge TPU can run an operator."""
    tensors, written = [model.tensors[number] for number in one.inputs if number >= 0], model.tensors[one.output]
    for own in (*tensors, written):
        if own.dtype == "float32" or (own.data is None and prod(own.shape[:-MOST_AXES]) != 1):
            return False
    constants = [own.data for own in tensors[1:] if own.data is not None]
    use = _Use(one.options, tensors, constants, written)
    return one.kind in EDGETPU and (one.kind not in LIMITS or LIMITS[one.kind](use))


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
