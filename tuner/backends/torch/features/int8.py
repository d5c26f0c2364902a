"""The frozen prefix in int8: quantised once, for the features of trials and for exports."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import fx

from tuner.arrays import Floats
from tuner.backends.base import silent
from tuner.backends.torch.clock import in_turns
from tuner.backends.torch.features.engines import INT8, cut_name, exported_prefix, int8_file
from tuner.backends.torch.features.selection import Selection, drawn, whole_partition
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.onnx.quantise import Quantiser, part_of
from tuner.errors import UnsupportedError, first_line
from tuner.files import private_file
from tuner.ort.session import Session
from tuner.store.calibrated import keep_recent, read_costs, write_costs
from tuner.task import Task
from tuner.training.epochs import Report
from tuner.training.schedule import batches_of

#: Samples of each domain that ranges are taken from, and how many run at once.
CALIBRATION_SAMPLES, BATCH = 64, 8
#: Of how the prefix is quantised: features that were made in another way are not mixed with these.
FORMAT = 1


class QuantisingStopped(Exception):  # noqa: N818 - asked for, and no error
    """The prefix was not quantised: the time is up, or the user has interrupted."""


def int8_kind(task: Task, model: OpenModel) -> str:
    """Return the engine's name: quantised by other samples, or after other preprocessing, it is another one."""
    content = json.dumps([FORMAT, model.info.blocks[0].in_shape, task.input.to_dict(), *_calibration_ids(task)])
    return f"{INT8}-{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"


def int8_prefix(task: Task, model: OpenModel, report: Report = silent) -> Path:
    """Return the prefix in int8 as an ONNX file with one output per inner cut, made where there is none yet.

    Raises:
        UnsupportedError: It cannot be written as ONNX, or quantised.
        QuantisingStopped: The report asked for it.
    """
    path = int8_file(model, int8_kind(task, model))
    if path.exists():
        return path
    cuts = [cut_name(cut) for cut in range(1, model.info.num_blocks)]
    try:
        quantised = Quantiser(exported_prefix(model), cuts, _reported(task, report)).quantised()
    except QuantisingStopped:
        raise
    except Exception as error:  # the exporter and the quantiser raise many kinds
        raise UnsupportedError(
            f"the frozen blocks cannot be quantised ({first_line(error)}): set runtime.precision to fp32"
        ) from error
    with private_file(path) as draft:
        draft.write_bytes(quantised.SerializeToString())
    keep_recent(path.parent)
    return path


def calibration_batches(task: Task) -> Iterator[Floats]:
    """Yield the samples that ranges are taken from, normalised, float32 [n, ...]: first local, then global ones."""
    for selection in _calibrated(task):
        for rows in batches_of(selection.indices, BATCH):
            yield task.batch(selection.samples, rows)


def _reported(task: Task, report: Report) -> Iterator[Floats]:
    done, of = 0, len(_calibration_ids(task))
    for batch in calibration_batches(task):
        yield batch
        done += len(batch)
        if report({"quantised": done, "of": of}):
            raise QuantisingStopped


def _calibrated(task: Task) -> list[Selection]:
    names = ["local.train", *(["global.train"] if task.global_ is not None else [])]
    return [drawn(whole_partition(task, name), CALIBRATION_SAMPLES) for name in names]


@lru_cache(maxsize=4)
def _calibration_ids(task: Task) -> tuple[str, ...]:
    return tuple(sample_id for selection in _calibrated(task) for sample_id in selection.ids())


@dataclass(frozen=True, slots=True)
class PredictionCosts:
    """What a prediction costs with the blocks before a cut in both precisions: one sample, one thread.

    Attributes:
        float32_seconds: Least time of these blocks in float32, by ONNX Runtime.
        int8_seconds: Least time of these blocks in int8.
        tail_seconds: Least time of the other blocks, in float32, by PyTorch.
        int8_bytes: Size of the blocks in int8, as an ONNX file.
    """

    float32_seconds: float
    int8_seconds: float
    tail_seconds: float
    int8_bytes: int

    @property
    def values(self) -> dict[str, float]:
        """The latency of the whole model, with these blocks in int8 and in float32, as a trial measures them."""
        return {
            "mean_latency_seconds": self.int8_seconds + self.tail_seconds,
            "whole_latency_seconds": self.float32_seconds + self.tail_seconds,
        }


def prediction_costs(task: Task, model: OpenModel, cut: int) -> PredictionCosts:
    """Return what a prediction costs, measured once for each cut: trials of one cut do not differ by timing noise.

    The least times count: these values are kept, and a device that is busy now would make the slower arm look slower.

    Raises:
        UnsupportedError: The prefix cannot be quantised.
    """
    blocks = int8_prefix(task, model)
    with suppress(TypeError):  # there are none yet, or they are damaged
        return PredictionCosts(**read_costs(blocks, cut))
    costs = _measured(task, model, cut)
    write_costs(blocks, cut, asdict(costs))
    return costs


def _measured(task: Task, model: OpenModel, cut: int) -> PredictionCosts:
    sample, name = task.batch(task.local.val, [0]), cut_name(cut)
    files = [part_of(path, [name]).SerializeToString() for path in (exported_prefix(model), int8_prefix(task, model))]
    sessions = [Session(content, 1) for content in files]
    float32, int8 = map(min, in_turns([partial(own.run, sample, name) for own in sessions]))
    features = spatial(torch.from_numpy(sessions[1].run(sample, name)[0]))
    tail, threads = model.tail(cut), torch.get_num_threads()
    runs = fast(tail) if isinstance(tail, fx.GraphModule) else tail.eval()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            (seconds,) = map(min, in_turns([partial(runs, features)]))
    finally:
        torch.set_num_threads(threads)
    return PredictionCosts(float32, int8, seconds, len(files[1]))
