"""The frozen prefix up to several cuts in one go, by PyTorch or by ONNX Runtime, decoding ahead of computing."""

import copy
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from itertools import islice
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tuner.backends.torch.model import Loaded
from tuner.folders import cache_folder
from tuner.planner.cost import FILL_BATCH
from tuner.store.records import BadRecord, RecordFile
from tuner.task import Samples, Task, normalise
from tuner.task.mixing import filling_order

TORCH, BFLOAT, ORT = "torch-fp32", "torch-bf16", "onnxruntime-fp32"
DECODERS = 2
AHEAD = 3
Floats = npt.NDArray[np.float32]
Engine = Callable[[Floats], Sequence[Floats]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbours in a split's filling order: they always run together, so that a refill gives the same bytes.

    Attributes:
        split: Name of the split.
        indices: Of its samples.
    """

    split: str
    indices: tuple[int, ...]


def splits_of(task: Task) -> dict[str, Samples]:
    """Return the task's splits by name."""
    domains = {"local": task.local, "global": task.global_}
    return {
        f"{name}.{split}": samples
        for name, domain in domains.items()
        if domain is not None
        for split, samples in domain.splits()
    }


def batches(task: Task, wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield the fixed batches that hold any wanted sample.

    Args:
        task: Names the splits.
        wanted: Indices by split.
    """
    for name, samples in splits_of(task).items():
        chosen = wanted.get(name)
        if not chosen:
            continue
        order = filling_order(samples.labels) if name == "global.train" else np.arange(len(samples))
        for begin in range(0, len(order), FILL_BATCH):
            indices = tuple(int(index) for index in order[begin : begin + FILL_BATCH])
            if not chosen.isdisjoint(indices):
                yield Batch(name, indices)


def exactly(wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield batches of just the wanted samples: for what is not kept, where the neighbours would run in vain."""
    for name, chosen in wanted.items():
        indices = sorted(chosen)
        for begin in range(0, len(indices), FILL_BATCH):
            yield Batch(name, tuple(indices[begin : begin + FILL_BATCH]))


@dataclass(frozen=True, slots=True)
class Shallower:
    """Records of a cut above those that are wanted, as exact as the prefix itself: 32 bits.

    Attributes:
        split: Whose input they are.
        file: That holds them.
    """

    split: int
    file: RecordFile


class Prefix:
    """The prefix up to some splits, from pixels or from what is stored of a shallower cut.

    Args:
        task: Its samples and preprocessing.
        loaded: The model.
        splits: Block numbers, ascending.
        kind: The engine.
        threads: It runs with.
        shallower: Stored records to start from, for batches that they hold whole.

    Attributes:
        shortened: Samples that did not start from pixels so far.
    """

    def __init__(
        self,
        task: Task,
        loaded: Loaded,
        splits: Sequence[int],
        kind: str,
        threads: int,
        shallower: Shallower | None = None,
    ) -> None:
        self._task = task
        self._samples = splits_of(task)
        self._splits = list(splits)
        self._engine = lru_cache(lambda begin: engine(loaded, splits, kind, threads, begin))
        self._shallower = shallower
        self._reading = Lock()
        self.shortened = 0
        self._decoding: list[float] = []  # seconds a sample, by batch
        flops = [sum(block.flops for block in loaded.info.blocks[:split]) for split in splits]
        self._share = {split: one / max(flops[-1], 1) for split, one in zip(splits, flops, strict=True)}

    def seconds_each(self, split: int, seconds: float) -> float:
        """Return the seconds a sample takes up to `split`: decoding, and its part of the FLOPs.

        Args:
            split: One of this prefix's.
            seconds: A sample took through the whole of it.
        """
        decoding = min(seconds, sum(self._decoding) / max(1, len(self._decoding)))
        return decoding + (seconds - decoding) * max(self._share[split], 1e-3)

    def over(self, todo: Iterable[Batch]) -> Iterator[tuple[Batch, dict[int, Floats]]]:
        """Yield (batch, float32 [n, *shape] by split), decoding the next batches while one runs."""
        remaining = iter(todo)
        with ThreadPoolExecutor(DECODERS) as pool:
            ahead: list[tuple[Batch, Future[tuple[int, Floats]]]] = [
                (batch, pool.submit(self._load, batch)) for batch in islice(remaining, AHEAD)
            ]
            try:
                while ahead:
                    batch, loading = ahead.pop(0)
                    begin, value = loading.result()
                    ahead.extend((one, pool.submit(self._load, one)) for one in islice(remaining, 1))
                    count = len(batch.indices)
                    self.shortened += count if begin else 0
                    outputs = self._engine(begin)(value)
                    yield batch, {split: out[:count] for split, out in zip(self._splits, outputs, strict=True)}
            finally:
                for _, loading in ahead:
                    loading.cancel()

    def _load(self, batch: Batch) -> tuple[int, Floats]:
        """Return the block to start at and its input, padded to a full batch with the first sample."""
        begin, value = self._stored(batch) or (0, self._pixels(batch))
        return begin, np.concatenate([value, *[value[:1]] * (FILL_BATCH - len(value))])

    def _pixels(self, batch: Batch) -> Floats:
        samples, started = self._samples[batch.split], time.perf_counter()
        pixels = normalise(np.stack([samples.load(index) for index in batch.indices]), self._task.input)
        self._decoding.append((time.perf_counter() - started) / len(batch.indices))
        return pixels

    def _stored(self, batch: Batch) -> tuple[int, Floats] | None:
        """Return what the shallower records hold of a batch; None where they lack any of it."""
        if self._shallower is None:
            return None
        samples, file = self._samples[batch.split], self._shallower.file
        try:
            with self._reading:
                records = file.read([samples.sample_id(index) for index in batch.indices])
        except BadRecord:
            return None
        return self._shallower.split, file.codec.decode(records)


def engine(loaded: Loaded, splits: Sequence[int], kind: str, threads: int, begin: int = 0) -> Engine:
    """Return what computes the prefix's outputs at `splits`, from pixels or from the input of block `begin`."""
    if loaded.chain is None:
        raise ValueError("a model without cut points has no prefix")
    if kind == ORT:
        from tuner.backends.ort.prefix import OrtPrefix

        names = [_name(split) for split in splits]
        return OrtPrefix(exported(loaded), names, threads, _name(begin) if begin else "")
    part = fast(
        loaded.chain.outputs(list(map(loaded.chain.split_position, splits)), loaded.chain.split_position(begin))
    )

    def run(batch: Floats) -> list[Floats]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=kind == BFLOAT):
            outputs = part(spatial(torch.from_numpy(batch)))
        return [np.ascontiguousarray(output.float().numpy()) for output in outputs]

    return run


def exported(loaded: Loaded) -> Path:
    """Return the prefix as an ONNX file with one output per inner cut, made once per device and model."""
    path = cache_folder() / "prefix" / f"{loaded.info.fingerprint}.onnx"
    if not path.exists() and loaded.chain is not None:
        inner = range(1, loaded.info.num_blocks)
        part = loaded.chain.outputs([loaded.chain.split_position(split) for split in inner])
        sample = torch.zeros(2, *loaded.info.blocks[0].in_shape)
        draft = path.with_suffix(f".{os.getpid()}.part")
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_onnx(part.eval(), sample, draft, [_name(split) for split in inner])
        draft.chmod(0o600)
        draft.replace(path)
    return path


def write_onnx(
    module: nn.Module, sample: torch.Tensor, path: Path, outputs: Sequence[str], *, optimize: bool = True
) -> None:
    """Export a module with a dynamic batch; quietly, and to one file.

    Args:
        module: In evaluation mode.
        sample: Of at least two samples: an example of one would fix the batch at one.
        path: To write.
        outputs: Names of the outputs.
        optimize: Whether the exporter may fold weights into others. ONNX Runtime does it when it loads the file.
    """
    said = StringIO()
    with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            module,
            (sample,),
            path,
            input_names=["input"],
            output_names=list(outputs),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
            optimize=optimize,
        )


def fast(part: fx.GraphModule) -> nn.Module:
    """Return an inference copy: norms folded into convolutions, channels last."""
    folded = copy.deepcopy(part).eval()
    modules = dict(folded.named_modules())
    for node in list(folded.graph.nodes):
        before = node.args[0] if node.args else None
        if node.op != "call_module" or not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        norm, convolution = modules[str(node.target)], modules[str(before.target)]
        is_pair = isinstance(norm, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d)
        if is_pair and norm.track_running_stats and len(before.users) == 1:
            fused = fuse_conv_bn_eval(convolution, norm)
            folded.set_submodule(str(before.target), fused)
            node.replace_all_uses_with(before)
            folded.graph.erase_node(node)
    folded.recompile()
    return channels_last(folded)


def channels_last(module: nn.Module) -> nn.Module:
    """Put a module's four-dimensional weights in the layout that convolutions are fastest in."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    return module


def spatial(value: torch.Tensor) -> torch.Tensor:
    """Return maps [n, C, H, W] with channels last in memory; anything else as it is."""
    maps = 4
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == maps else value


def _name(split: int) -> str:
    return f"cut{split}"
