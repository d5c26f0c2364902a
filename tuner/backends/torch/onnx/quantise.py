"""Frozen blocks that compute in int8, by onnxruntime's own quantiser.

Activations are uint8, one scale a tensor; weights are int8, one scale an output channel. The nodes between are those of
ONNX (QuantizeLinear, DequantizeLinear), which ONNX Runtime fuses with the layers when it loads the file.

A tensor's range is where all but one in 10,000 of the calibration samples' values lie. The smallest and the largest
value are outliers: with them MobileNetV2 lost 1.5 points of both accuracies of the clothing task, without them at most
0.6.
"""

import logging
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np

from tuner.arrays import Floats
from tuner.ort.session import FEATURES, LOGITS, Session

#: Percentage of a tensor's values up to an end of its range.
PERCENTILE = 99.99
#: Operators that are quantised: they have kernels of 8 bits. What is between them stays in 8 bits where it can.
OPERATORS = ("Add", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "MatMul", "MaxPool", "Mul", "Sigmoid")
#: Operators that the range of what they bound makes superfluous.
BOUNDS = ("Clip", "Relu")
INPUT, _PREFIX = "input", "int8/"


class Quantiser:
    """Frozen blocks, calibrated.

    Args:
        prefix: ONNX file with the input ``input``.
        outputs: Names of its outputs that are wanted, ascending.
        batches: Normalised inputs to calibrate with, float32 [n, ...]. They are run one by one, as all that a batch
            computes is in memory at once.
        percentile: Percentage of a tensor's values that are at most its range's upper end; likewise at the lower end.

    Attributes:
        layers: Names of the nodes that can be quantised, and the bytes of their weights.
    """

    def __init__(
        self, prefix: Path, outputs: Sequence[str], batches: Iterable[Floats], percentile: float = PERCENTILE
    ) -> None:
        from onnxscript.optimizer import optimize

        self._outputs = tuple(outputs)
        with _quiet():
            self._prefix: Any = optimize(part_of(prefix, outputs))
        for number, node in enumerate(self._prefix.graph.node):
            node.name = f"{number}"  # the exporter's are not always there, and not always different
        bytes_of = {value.name: 4 * int(prod(value.dims)) for value in self._prefix.graph.initializer}
        self.layers: dict[str, int] = {
            node.name: sum(bytes_of.get(name, 0) for name in node.input)
            for node in self._prefix.graph.node
            if node.op_type in OPERATORS
        }
        self._bounds = [node.name for node in self._prefix.graph.node if node.op_type in BOUNDS]
        self._ranges = self._calibrated(batches, percentile)

    def quantised(self, kept: Collection[str] = ()) -> Any:
        """Return the frozen blocks in int8, as an ONNX model, without the layers that are kept in float32."""
        return self._quantised(kept, self.layers)

    def by_sensitivity(self, batch: Floats) -> list[str]:
        """Return the layers' names, first the one whose quantisation alone changes the last output of a batch most."""
        last = self._outputs[-1]
        given = Session(self._prefix.SerializeToString(), 1).run(batch, last)[0]
        errors = {}
        for name in self.layers:
            alone = Session(self._quantised((), [name]).SerializeToString(), 1).run(batch, last)[0]
            errors[name] = float(np.square(alone - given).sum())
        return sorted(errors, key=lambda name: -errors[name])

    def _calibrated(self, batches: Iterable[Floats], percentile: float) -> Any:
        """Return the range of each tensor."""
        import onnx
        from onnxruntime.quantization import CalibrationMethod, create_calibrator

        with TemporaryDirectory() as folder, _quiet():
            path = Path(folder) / "prefix.onnx"
            onnx.save(self._prefix, path)
            calibrator = create_calibrator(
                path,
                [*OPERATORS, *BOUNDS],
                augmented_model_path=str(Path(folder) / "augmented.onnx"),
                calibrate_method=CalibrationMethod.Percentile,
                extra_options={"percentile": percentile},
            )
            for batch in batches:
                calibrator.collect_data(SimpleNamespace(get_next=iter([{INPUT: batch}, None]).__next__))  # a reader
            return calibrator.compute_data()

    def _quantised(self, kept: Collection[str], layers: Collection[str]) -> Any:
        """Return the frozen blocks with some layers in int8."""
        from onnx.shape_inference import infer_shapes
        from onnxruntime.quantization import QDQQuantizer, QuantType

        with _quiet():
            quantiser = QDQQuantizer(
                infer_shapes(self._prefix),
                per_channel=True,
                reduce_range=False,
                weight_qType=QuantType.QInt8,
                activation_qType=QuantType.QUInt8,
                tensors_range=self._ranges,
                nodes_to_quantize=[name for name in (*layers, *self._bounds) if name not in kept],
                nodes_to_exclude=[],
                op_types_to_quantize=[*OPERATORS, *BOUNDS],
                extra_options={},
            )
            quantiser.quantize_model()
            return quantiser.model.model


def part_of(model: Path | Any, outputs: Sequence[str], begin: str = INPUT) -> Any:
    """Return the part of an ONNX model that computes some of its values from its input, or from an inner value."""
    from onnx import load
    from onnx.utils import Extractor

    return Extractor(load(model) if isinstance(model, Path) else model).extract_model([begin], list(outputs))


def with_prefix(model: Path, prefix: Any, path: Path) -> None:
    """Write a model whose outputs are ``logits`` and ``features`` with other frozen blocks, which have one output."""
    import onnx
    from onnx.compose import add_prefix
    from onnx.utils import Extractor

    whole = onnx.load(model)
    with _quiet():
        tail = Extractor(whole).extract_model([INPUT, FEATURES], [LOGITS])
    frozen = add_prefix(prefix, _PREFIX, rename_inputs=False, rename_outputs=False, rename_value_infos=False)
    given = prefix.graph.output[0].name
    for node in frozen.graph.node:
        for names in (node.input, node.output):
            names[:] = [FEATURES if name == given else name for name in names]
    graph = whole.graph
    for values, of_prefix, of_tail in (
        (graph.node, frozen.graph.node, tail.graph.node),
        (graph.initializer, frozen.graph.initializer, tail.graph.initializer),
        (graph.value_info, (), ()),
    ):
        del values[:]
        values.extend([*of_prefix, *of_tail])
    onnx.save(whole, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from printing, and from setting up the log of this process."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
