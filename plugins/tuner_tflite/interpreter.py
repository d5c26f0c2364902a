"""LiteRT, which runs TFLite files."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.distribution import install_command
from tuner.errors import UnsupportedError
from tuner_tflite.asked import EXTRA


class Interpreter:
    """A TFLite model that is run sample by sample on one thread.

    Args:
        content: The file's content.
        every: Whether all tensors can be read after a run; then no operators are merged.
    """

    def __init__(self, content: bytes, *, every: bool = False, threads: int = 1) -> None:
        interpreter = _litert()
        kind = interpreter.OpResolverType
        resolver = kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES if every else kind.AUTO
        self._own: Any = interpreter.Interpreter(
            model_content=content,
            num_threads=threads,
            experimental_preserve_all_tensors=every,
            experimental_op_resolver_type=resolver,
        )
        self._own.allocate_tensors()
        self._input, self._output = self._own.get_input_details()[0], self._own.get_output_details()[0]

    def answers(self, batch: Floats) -> Floats:
        """Return the output of each sample as numbers that it stands for, float32 [n, outputs]."""
        return np.concatenate([self._answer(sample[None]) for sample in batch])

    def _answer(self, sample: Floats) -> Floats:
        self._own.set_tensor(self._input["index"], _as(sample, self._input))
        self._own.invoke()
        found: Floats = self._own.get_tensor(self._output["index"])
        scale, zero = self._output["quantization"]
        return found if not scale else (scale * (found.astype(np.float32) - zero)).astype(np.float32)

    def tensors(self, sample: Floats, wanted: Collection[int]) -> Iterator[tuple[int, Floats]]:
        """Run a sample [1, ...] and yield the wanted tensors in float32, by their numbers in the file."""
        self._answer(sample)
        for detail in self._own.get_tensor_details():
            if detail["index"] in wanted and detail["dtype"] is np.float32:
                try:
                    yield detail["index"], self._own.get_tensor(detail["index"])
                except ValueError:  # of a kernel's own, which has no memory
                    continue


def runners(content: bytes, threads: int = 1) -> dict[str, Any]:
    """Return what runs each signature of a file: it takes inputs by name and returns outputs by name."""
    own = _litert().Interpreter(model_content=content, num_threads=threads)
    return {name: own.get_signature_runner(name) for name in own.get_signature_list()}


def _litert() -> Any:
    try:
        from ai_edge_litert import interpreter
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"TFLite needs LiteRT ({error}): {install_command(EXTRA)}") from None
    return interpreter


def _as(sample: Floats, detail: Any) -> npt.NDArray[Any]:
    """Return a sample as an input's numbers stand for it."""
    scale, zero = detail["quantization"]
    if not scale:
        return np.asarray(sample, detail["dtype"])
    limits = np.iinfo(detail["dtype"])
    return np.asarray(np.clip(np.rint(sample / scale) + zero, limits.min, limits.max), detail["dtype"])
