"""What ONNX Runtime computes in a file: the shapes of all values, and those values that do not depend on the samples.

Exporters write shapes as numbers that other operators compute, and constants in as many ways. All that needs no
symbolic reasoning: the file is run once, and once more with another number of samples, which says where that number is
in a shape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, ValueInfoProto, numpy_helper

from tuner.arrays import Floats
from tuner.errors import TaskError, first_line
from tuner.ort.session import MOST_BYTES, open_session, require_bounded
from tuner_onnx_models.torch.file import OnnxFile, needed_nodes

Array = npt.NDArray[Any]
_SIZES_ONLY = frozenset({"Shape", "Size"})


class Values:
    """The values that an output of a file depends on.

    Args:
        file: The file.
        output: Name of the value.
        sample: float32 [1, ...], as the file takes it.

    Attributes:
        input: Name of the value that the samples are.
        output: Name of the value.
        nodes: The nodes whose results depend on the samples, in order.
        static: Values that do not depend on the samples, as they are for `file.batch` samples.
        shapes: Shapes of the values that do depend on them, for as many.
        free_batch: Whether the file runs with another number of samples.

    Raises:
        TaskError: The file does not run.
    """

    def __init__(self, file: OnnxFile, output: str, sample: Floats) -> None:
        self._file, self.input, self.output = file, file.input, output
        nodes = needed_nodes(file.graph, [output])
        data = {file.input}
        for node in nodes:
            if node.op_type not in _SIZES_ONLY and data.intersection(node.input):
                data.update(name for name in node.output if name)
        self.nodes = [node for node in nodes if data.intersection(node.output)]
        static = {name for node in nodes for name in node.output if name and name not in data}
        held = {tensor.name: numpy_helper.to_array(tensor) for tensor in file.graph.initializer}
        self._require_one_input(nodes, {*data, *static, *held, ""})
        computed = sorted(data - {file.input}) + sorted(static)
        require_bounded(file.model.SerializeToString(), sample.shape, MOST_BYTES, TaskError)
        self._session = _session(file, computed, as_written=True)
        try:
            results = self._run(computed, sample, file.batch)
        except Exception as error:
            raise TaskError(
                f"model.weights: {file.path} does not take inputs of shape {list(sample.shape)} "
                f"({first_line(error).partition(': ')[2]}): see [input]"
            ) from error
        self.shapes = {file.input: (file.batch, *sample.shape[1:])}
        self.shapes |= {name: results[name].shape for name in computed if name in data}
        self.static = {**held, **{name: results[name] for name in static}}
        self._types = {name: results[name].dtype for name in computed}
        try:
            again = self._run(computed, sample, file.batch + 1)
        except Exception:  # noqa: BLE001 - the file fixes the number of samples somewhere
            again = None
        at_two = again[output].shape if again is not None else ()
        if at_two[:1] != (file.batch + 1,):  # an index of fixed size may leave samples out, quietly
            again = None
        self.free_batch = again is not None
        self._other = {name: value.shape for name, value in (again or {}).items()}
        self._varying = {
            name for name in static if again is not None and not np.array_equal(again[name], results[name])
        }

    def _require_one_input(self, nodes: Sequence[Any], known: set[str]) -> None:
        other = next((name for node in nodes for name in node.input if name not in known), None)
        if other is not None:
            raise TaskError(
                f"model.weights: {self._file.path} computes {self.output!r} from the input {other!r} too, but only "
                f"{self._file.input!r} can be given: export the model with one input"
            )

    def logits(self, batch: Floats) -> Floats:
        """Return the output for each of some samples, float32 [n, ...]."""
        times, session = self._file.batch, _session(self._file, [self.output])
        rows = [self._run([self.output], sample[None], times, session)[self.output][:1] for sample in batch]
        return np.concatenate(rows)

    def places_of_batch(self, name: str) -> tuple[int, ...]:
        """Return the axes of a value whose size depends on the number of samples.

        Where the file does not run with another number, it is taken to be the first axis.
        """
        if name not in self._other:
            return (0,)
        pairs = enumerate(zip(self.shapes[name], self._other[name], strict=True))
        return tuple(axis for axis, (one, other) in pairs if one != other)

    def is_float(self, name: str) -> bool:
        """Return whether a value is float32."""
        return name == self.input or self._types[name] == np.float32

    def varies(self, name: str) -> bool:
        """Return whether a value that does not depend on the samples depends on their number."""
        return name in self._varying

    def _run(self, names: Sequence[str], sample: Floats, times: int, session: Any = None) -> dict[str, Array]:
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        options.log_severity_level = 4  # a run with another number of samples may fail, quietly
        batch = np.repeat(sample, times, axis=0)
        return dict(
            zip(names, (session or self._session).run(list(names), {self._file.input: batch}, options), strict=True)
        )


def _session(file: OnnxFile, outputs: Sequence[str], *, as_written: bool = False) -> Any:
    """Return a session on one thread, as a pool would not survive a fork, whose outputs are the values named."""
    model = ModelProto()
    model.CopyFrom(file.model)
    del model.graph.output[:]
    model.graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    unused = [value for value in model.graph.input if value.name != file.input]
    for value in unused:
        if any(value.name == tensor.name for tensor in file.graph.initializer):
            model.graph.input.remove(value)
    content = model.SerializeToString()
    return open_session(file.path, 1, fixed_shapes=True, content=content, error=TaskError, as_written=as_written)
