"""A TFLite model in int8: the specification of LiteRT for full-integer models.

Activations have a scale and a zero for each tensor, filters a scale for each output channel, biases are int32. Dense
layers have one scale: older runtimes have no other kernel. An operator without a kernel in int8, and norms of a sample,
whose variances no eight bits hold, stay in float32 between a DEQUANTIZE and a QUANTIZE.

What eight bits cost is nearly all in the activations: where that is too much, weights alone are in int8, and a
DEQUANTIZE, which LiteRT runs once, makes them float32.

Scales are those of ranges, or those that an ONNX model in int8 has: then both compute with the same numbers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner_tflite.interpreter import Interpreter
from tuner_tflite.model import Operator, Scale, Tensor, TfliteModel, used
from tuner_tflite.write import WHITE

Array = npt.NDArray[Any]
#: Operators whose output has the scale of their inputs.
SAME_SCALE = frozenset({
    "AVERAGE_POOL_2D", "BROADCAST_TO", "CONCATENATION", "GATHER", "MAXIMUM", "MAX_POOL_2D", "MINIMUM", "MIRROR_PAD",
    "PAD", "PADV2", "REDUCE_MAX", "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "STRIDED_SLICE", "TRANSPOSE",
})  # fmt: skip
#: Those of them that write values which they read.
MOVES = SAME_SCALE - {"AVERAGE_POOL_2D", "CONCATENATION", "MAXIMUM", "MINIMUM", "PADV2", "RESIZE_BILINEAR"}
#: Scale and zero that the kernels of these write.
FIXED = {"LOGISTIC": Scale((1 / 256,), -128), "SOFTMAX": Scale((1 / 256,), -128), "TANH": Scale((1 / 128,), 0)}
#: Axis of the output channels in the weights of these.
CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}
WEIGHTED = frozenset({*CHANNELS, "FULLY_CONNECTED"})
#: Operators with a kernel in int8.
KERNELS = WEIGHTED | SAME_SCALE | {
    "ADD", "BATCH_MATMUL", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MEAN", "MUL", "RELU", "RELU6", "SOFTMAX",
    "SUB", "TANH",
}  # fmt: skip
LOWEST, HIGHEST, MOST_WEIGHT, MOST_BIAS = -128, 127, 127, 2**30
#: Smallest scale, of a tensor that is 0 throughout.
LEAST_SCALE = 1e-9
#: Percentage of a tensor's values that are at most its range's upper end; likewise at the lower end: of `--int8` too.
PERCENTILE = 99.99
#: Values that are looked at at once.
PART = 1 << 17
#: What is written below all values, where the largest one is looked for.
NOTHING = float(np.finfo(np.float32).min)
Ranges = Mapping[int, tuple[float, float]]


def calibrated(model: TfliteModel, content: bytes, batches: Iterable[Floats], count: int, *, pixels: bool) -> Ranges:
    """Return where the values of each tensor lie, without outliers.

    Args:
        model: A model in float32.
        content: The same as a file's content.
        batches: Inputs as the model takes them, float32 [n, ...].
        count: Number of samples in all batches.
        pixels: Whether the inputs are pixels, which go in as they are: the scale of the input is 1.
    """
    interpreter = Interpreter(content, every=True)
    computed = {place: number for place, number in enumerate(used(model)) if model.tensors[number].data is None}
    ends: dict[int, tuple[_Largest, _Largest]] = {}
    for batch in batches:
        for sample in batch:
            for place, values in interpreter.tensors(sample[None], computed):
                outliers = int(count * values.size * (1 - PERCENTILE / 100))
                low, high = ends.setdefault(computed[place], (_Largest(outliers), _Largest(outliers)))
                least, largest = float(values.min()), float(values.max())
                high.see(values, largest)
                if -least > low.end:
                    low.see(-values, -least)
    ranges = {number: (-low.end, high.end) for number, (low, high) in ends.items()}
    for operator in model.operators:
        if operator.kind == "PADV2" and ranges[operator.output][0] <= NOTHING:  # the edges of a pool of largest values
            ranges[operator.output] = ranges[operator.inputs[0]]
    return {**ranges, model.input: (0.0, WHITE)} if pixels else ranges


class _Largest:
    """The largest values of those seen, one more than there are outliers."""

    def __init__(self, outliers: int) -> None:
        self._kept = np.full(outliers + 1, -np.inf, np.float32)
        self._least = -np.inf

    @property
    def end(self) -> float:
        """The largest value that is no outlier."""
        return float(self._least)

    def see(self, values: Floats, largest: float) -> None:
        """See values, float32 of any shape, of which the largest is known."""
        if largest <= self._least:
            return
        flat, size = values.ravel(), self._kept.size
        for at in range(0, flat.size, PART):
            part = flat[at : at + PART]
            both = np.concatenate([self._kept, part[part > self._least]])
            self._kept = np.partition(both, both.size - size)[-size:].copy()  # not a view, which holds all
            self._least = float(self._kept.min())


def quantised(model: TfliteModel, ranges: Ranges, dtype: str, *, weights_only: bool = False) -> TfliteModel:
    """Return a model in int8.

    Args:
        model: A model in float32.
        ranges: Where the values of each tensor that is computed lie.
        dtype: ``int8`` or ``uint8``: what goes in and comes out.
        weights_only: Whether the model computes in float32, with weights that are kept in int8.
    """
    return _Quantised(model, *_scales(model, ranges), dtype, weights_only=weights_only).model


def with_scales(model: TfliteModel, named: Mapping[str, Scale], dtype: str) -> TfliteModel:
    """Return a model in int8, whose operators stay in float32 where a value that they read or write has no scale.

    Args:
        model: A model in float32.
        named: Scales by the names of values; those of the input and of the normalised one among them.
        dtype: As of `quantised`.
    """
    computed = [number for number, own in enumerate(model.tensors) if own.data is None]
    scales = {number: named[name] for number in computed if (name := model.tensors[number].name) in named}
    operators = []
    for own in model.operators:
        read = {scales.get(number) for number in own.inputs if number in computed}
        if own.kind in MOVES and len(read) == 1 and (scale := next(iter(read))) is not None:
            scales.setdefault(own.output, scale)
        has_all = own.output in scales and None not in read
        is_alike = own.kind not in SAME_SCALE or read == {scales.get(own.output)}
        operators.append(own if has_all and is_alike else replace(own, exact=True))
    fixed = {own.output for own in operators if own.kind in FIXED and scales.get(own.output) == FIXED[own.kind]}
    scales.setdefault(model.output, FIXED["SOFTMAX"])
    return _Quantised(replace(model, operators=operators), scales, fixed, dtype, weights_only=False).model


class _Quantised:
    def __init__(
        self, given: TfliteModel, scales: Mapping[int, Scale], fixed: Collection[int], dtype: str, *, weights_only: bool
    ) -> None:
        self.model = TfliteModel()
        self._given = given
        weighted = [one for one in given.operators if weights_only and one.kind in WEIGHTED and not one.exact]
        self._packed = {one.inputs[1]: CHANNELS.get(one.kind, 0) for one in weighted}
        self._scales, self._fixed = scales, fixed
        self._int8: dict[int, int] = {}
        self._floats: dict[int, int] = {}
        self._begin(dtype)
        for operator in given.operators:
            is_exact = operator.exact or operator.kind not in KERNELS
            is_unfixed = operator.kind in FIXED and operator.output not in self._fixed
            if weights_only or is_exact or is_unfixed:
                inputs = [self._as_float(number) for number in operator.inputs]
                self._floats[operator.output] = self._add(operator, inputs)
            else:
                inputs = list(self._inputs(operator))
                self._int8[operator.output] = self._add(operator, inputs, self._scales[operator.output])
        output = self._as_int8(given.output)
        self.model.output = output if dtype == "int8" else self._unsigned(output)

    def _begin(self, dtype: str) -> None:
        """Add the input."""
        number = self._given.input
        own = self._given.tensors[number]
        if dtype == "int8":
            self.model.input = self._int8[number] = self.model.tensor(own.name, own.shape, "int8", self._scales[number])
            return
        scale = self._scales[number]
        self.model.input = self.model.tensor(own.name, own.shape, dtype, replace(scale, zero=scale.zero - LOWEST))
        self._int8[number] = self._converted("QUANTIZE", self.model.input, "int8", scale)

    def _unsigned(self, number: int) -> int:
        scale = self.model.tensors[number].scale
        if scale is None:
            raise ValueError("the output is not quantised")
        return self._converted("QUANTIZE", number, "uint8", replace(scale, zero=scale.zero - LOWEST))

    def _add(self, operator: Operator, inputs: list[int], scale: Scale | None = None) -> int:
        own = self._given.tensors[operator.output]
        output = self.model.tensor(own.name, own.shape, "float32" if scale is None else "int8", scale)
        self.model.operators.append(replace(operator, inputs=tuple(inputs), output=output))
        return output

    def _converted(self, kind: str, number: int, dtype: str, scale: Scale | None) -> int:
        """Add what turns a tensor into one of another type."""
        own = self.model.tensors[number]
        output = self.model.tensor(own.name, own.shape, dtype, scale)
        self.model.operators.append(Operator(kind, (number,), output))
        return output

    def _as_float(self, number: int) -> int:
        """Return the tensor in float32."""
        if number not in self._floats:
            own = self._given.tensors[number] if number >= 0 else None
            if own is None:
                return number
            if own.data is not None and number in self._packed:
                numbers, scale = _rounded(own.data, self._packed[number])
                held = self.model.constant(numbers, own.name, scale)
                self._floats[number] = self._converted("DEQUANTIZE", held, "float32", None)
            elif own.data is not None:
                self._floats[number] = self.model.constant(own.data, own.name)
            else:
                self._floats[number] = self._converted("DEQUANTIZE", self._int8[number], "float32", None)
        return self._floats[number]

    def _as_int8(self, number: int) -> int:
        """Return a computed tensor in int8."""
        if number not in self._int8:
            self._int8[number] = self._converted("QUANTIZE", self._floats[number], "int8", self._scales[number])
        return self._int8[number]

    def _inputs(self, operator: Operator) -> Iterator[int]:
        """Yield the inputs of an operator in int8."""
        if operator.kind in WEIGHTED:
            yield from self._weighted(operator)
            return
        for number in operator.inputs:
            own = self._given.tensors[number]
            if own.data is None:
                yield self._as_int8(number)
            elif own.dtype != "float32":
                yield self._as_float(number)
            elif operator.kind in SAME_SCALE:
                yield self._constant(own, own.data, self._scales[operator.output])
            else:
                yield self._constant(own, own.data, _scale_of(float(own.data.min()), float(own.data.max())))

    def _weighted(self, operator: Operator) -> Iterator[int]:
        """Yield the input, the weights and the bias of a layer."""
        given = self._as_int8(operator.inputs[0])
        weights, bias = (self._given.tensors[number] for number in operator.inputs[1:])
        scale = self.model.tensors[given].scale
        if weights.data is None or bias.data is None or scale is None:
            raise ValueError(f"{operator.kind} without constant weights")
        axis = CHANNELS.get(operator.kind)
        # a bias is int32 at the scale of a product: it bounds the scale of weights that are next to nothing
        least = np.abs(bias.data).max() if axis is None else np.abs(bias.data)
        numbers, own = _rounded(weights.data, axis, least / MOST_BIAS / scale.scales[0])
        yield given
        yield self.model.constant(numbers, weights.name, own)
        products = np.array(own.scales) * scale.scales[0]
        sums = np.rint(bias.data / products).astype(np.int32)
        yield self.model.constant(sums, bias.name, Scale(tuple(products.tolist())))

    def _constant(self, own: Tensor, data: Array, scale: Scale) -> int:
        numbers = np.clip(np.rint(data.astype(np.float64) / scale.scales[0]) + scale.zero, LOWEST, HIGHEST)
        return self.model.constant(numbers.astype(np.int8), own.name, scale)


def _rounded(data: Array, axis: int | None, least: Any = 0.0) -> tuple[Array, Scale]:
    """Return weights as int8, and their scales along an axis, or one where it is None; each is `least` or more."""
    others = None if axis is None else tuple(other for other in range(data.ndim) if other != axis)
    largest = np.abs(data).max(axis=others).reshape(-1).astype(np.float64)
    scales = np.maximum(np.maximum(largest / MOST_WEIGHT, least), LEAST_SCALE)
    shape = [-1 if other == axis else 1 for other in range(data.ndim)]
    numbers = np.clip(np.rint(data / scales.reshape(shape)), -MOST_WEIGHT, MOST_WEIGHT).astype(np.int8)
    return numbers, Scale(tuple(scales.tolist()), 0, axis or 0)


def _scales(model: TfliteModel, ranges: Ranges) -> tuple[dict[int, Scale], set[int]]:
    """Return the scale of each computed tensor, and which tensors have a scale that a kernel fixes."""
    kinds = {operator.output: operator.kind for operator in model.operators if not operator.exact}
    scales: dict[int, Scale] = {}
    fixed: set[int] = set()
    for numbers in _groups(model, ranges):
        low, high = (end(ranges[number][at] for number in numbers) for at, end in ((0, min), (1, max)))
        scale = _scale_of(low, high)
        wanted = {FIXED[kinds[number]] for number in numbers if kinds.get(number) in FIXED}
        for own in wanted if len(wanted) == 1 else ():
            first, last = (own.scales[0] * (limit - own.zero) for limit in (LOWEST, HIGHEST + 1))
            if first <= low and high <= last:
                scale = own
                fixed.update(numbers)
        scales |= dict.fromkeys(numbers, scale)
    return scales, fixed


def _groups(model: TfliteModel, numbers: Iterable[int]) -> Iterable[list[int]]:
    """Return the tensors that have one scale."""
    parents = {number: number for number in numbers}

    def root(number: int) -> int:
        while parents[number] != number:
            number = parents[number]
        return number

    for operator in model.operators:
        if operator.kind in SAME_SCALE and not operator.exact and operator.output in parents:
            for number in set(operator.inputs) & set(parents):
                parents[root(number)] = root(operator.output)
    groups: dict[int, list[int]] = {}
    for number in parents:
        groups.setdefault(root(number), []).append(number)
    return groups.values()


def _scale_of(low: float, high: float) -> Scale:
    """Return the scale of values in a range, which has 0 among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / (HIGHEST - LOWEST), LEAST_SCALE)
    return Scale((scale,), int(np.clip(round(LOWEST - low / scale), LOWEST, HIGHEST)))
