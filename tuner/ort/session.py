"""ONNX Runtime sessions, with settings that hoard neither memory nor processor time."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import onnxruntime

from tuner.arrays import Floats
from tuner.errors import BundleError, TunerError
from tuner.machine.control_group import usable_processors
from tuner.ort.sizes import peak_bytes

#: What Linux says of the processor; other systems have no such file.
CPU_INFO = Path("/proc/cpuinfo")
LOGITS, FEATURES = "logits", "features"
#: Most that the values of a graph may take at once on one sample; and on a batch, where the file fixes its size.
MOST_BYTES, MOST_FIXED_BYTES = 2**30, 2**32


def open_session(
    model: Path | bytes,
    threads: int | None = None,
    *,
    fixed_shapes: bool = False,
    repeats: bool = False,
    content: bytes | None = None,
    error: type[TunerError] = BundleError,
    as_written: bool = False,
) -> Any:
    """Return an ONNX Runtime session of a model.

    Threads sleep while they wait for work instead of spinning, which would take the processor from the next session of
    a chain, from what decodes samples, and from the user.

    Args:
        model: The ONNX file, or its content.
        threads: Threads within an operator; all that the process may use where it is not given.
        fixed_shapes: Whether all runs have the same shapes. Memory is then taken operator by operator, without an
            arena unless the model `repeats`: one block for a whole run takes a third more, and is no faster.
        repeats: Whether the model is a step that runs again and again. The arena then keeps its memory from run to run:
            what one operator freed fits the next, and less is taken, in less time. Threads spin between its operators,
            which are many and short, but not beyond the step.
        content: What is opened instead of the file's own content.
        error: Raised where the model cannot be opened.
        as_written: Whether operators run as the file has them, not merged: any value may then be an output.

    Raises:
        TunerError: The model is not one that this ONNX Runtime can run, or takes gigabytes at once.
    """
    if not as_written:
        require_bounded(content or model, (), MOST_FIXED_BYTES if fixed_shapes else MOST_BYTES, error)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or usable_processors()
    options.log_severity_level = 4  # below, names in a graph reach the terminal as they are; exceptions say what failed
    options.enable_cpu_mem_arena = repeats or not fixed_shapes
    options.enable_mem_pattern = not fixed_shapes
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if _adds_in_16_bits():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if repeats else "0")
    if fixed_shapes:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = onnxruntime.InferenceSession(content or model, options, providers=["CPUExecutionProvider"])
    except Exception as reason:  # noqa: BLE001 - onnxruntime raises many kinds for a file that is not a model
        raise error(_unloaded(model, reason)) from None
    session._model_bytes = None  # noqa: SLF001 - kept for a session anew on another provider: a second model in memory
    return session


@cache
def _adds_in_16_bits() -> bool:
    """Return whether this processor adds two products of 8 bits in 16, where they may overflow: x86 without VNNI.

    The kernels that are right there take twice the time, so they are for such processors only. Where the processor does
    not say what it has, they are taken too.
    """
    try:
        with CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            flags = next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return True
    return "vnni" not in flags


def named(model: Path | bytes) -> str:
    """Return what messages call a model."""
    return str(model) if isinstance(model, Path) else "the model"


class Session:
    """Runs a model.

    A single sample finds its memory where the one before it left it: memory taken anew costs 0.1 ms a prediction, and
    half as much again of what the session takes. After a batch, it is given back: batches of many sizes would let it
    grow (onnxruntime issue 11627). What the first run takes is always kept, so that one runs on a single sample.

    Args:
        model: The ONNX file, or its content.
        threads: Threads within an operator; all that the process may use where it is not given.
        content: What is opened instead of the file's own content.

    Attributes:
        outputs: Names of the model's outputs.

    Raises:
        BundleError: The file is not a model that this ONNX Runtime can run.
    """

    def __init__(self, model: Path | bytes, threads: int | None = None, content: bytes | None = None) -> None:
        self._session = open_session(model, threads, content=content)
        first = self._session.get_inputs()[0]
        self._name, self._input = named(model), first.name
        # What the first run has to bound, where sizes are open. Kept no longer: content is the model a second time.
        self._unbounded = None if all(isinstance(one, int) for one in first.shape[1:]) else content or model
        self.outputs: tuple[str, ...] = tuple(output.name for output in self._session.get_outputs())
        self._alone, self._batched = _run_options(), _run_options()
        self._batched.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._has_run = False

    def logits(self, batch: Floats) -> Floats:
        """Return float32 [n, outputs] of a normalised batch [n, ...]."""
        return self.run(batch, LOGITS)[0]

    def features(self, batch: Floats) -> Floats:
        """Return what the model passes on of a batch, float32 [n, ...]; nothing beyond it runs."""
        return self.run(batch, FEATURES)[0]

    def run(self, batch: Floats, *names: str) -> list[Floats]:
        """Return the named outputs; nothing runs that they do not need.

        Raises:
            BundleError: The model cannot compute this batch.
        """
        if (model := self._unbounded) is not None:
            require_bounded(model, (1, *batch.shape[1:]), MOST_BYTES, BundleError)
        try:
            if len(batch) > 1 and not self._has_run:
                self._session.run(list(names), {self._input: batch[:1]}, self._alone)
            options = self._batched if len(batch) > 1 else self._alone
            outputs: list[Floats] = self._session.run(list(names), {self._input: batch}, options)
            self._has_run, self._unbounded = True, None
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds, all of its own making
            raise BundleError(f"{self._name} failed while it ran: {str(error).splitlines()[0]}") from None
        return outputs


def require_bounded(model: Path | bytes, sample: Sequence[int], most: int, error: type[TunerError]) -> None:
    """Refuse a graph whose values take gigabytes at once, before anything of it is computed."""
    try:
        peak = peak_bytes(model, sample, partial(open_session, threads=1, as_written=True))
    except (BundleError, OSError) as reason:
        raise error(_unloaded(model, reason)) from None
    if peak > most:
        text = f"takes {peak / 1e9:.3g} GB of memory at once, more than the {most / 1e9:.1f} GB that a model may"
        raise error(f"{named(model)} {text}: use a smaller model, or smaller batches")


def _unloaded(model: Path | bytes, reason: Exception) -> str:
    first = str(reason).splitlines()[0]
    return f"ONNX Runtime {onnxruntime.__version__} cannot load {named(model)} ({first}): update it, or export again"


def _run_options() -> Any:
    options = onnxruntime.RunOptions()
    options.only_execute_path_to_fetches = True
    return options
