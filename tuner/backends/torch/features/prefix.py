"""The frozen prefix up to several cuts in one go, decoding ahead of computing."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from threading import Lock

import numpy as np

from tuner.arrays import Floats
from tuner.backends.torch.features.engines import INT8, ORT, prefix_engine
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.threads import ThreadChoice
from tuner.planner.device import FILL_BATCH
from tuner.store.files.records import BadRecord, RecordFile
from tuner.task import Task
from tuner.task.mixing import filling_order
from tuner.training.schedule import batches_of

DECODERS = 2
AHEAD = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbours in a partition's filling order: they always run together, so that a refill gives the same bytes."""

    partition: str
    indices: tuple[int, ...]


def batches(task: Task, wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield the fixed batches of a task's partitions that hold any of the wanted indices."""
    for name, samples in task.partitions():
        asked = wanted.get(name)
        if not asked:
            continue
        for rows in batches_of(filling_order(samples.labels), FILL_BATCH):
            if not asked.isdisjoint(rows.tolist()):
                yield Batch(name, tuple(rows.tolist()))


def exactly(wanted: Mapping[str, set[int]]) -> Iterator[Batch]:
    """Yield batches of just the wanted samples: for what is not kept, where the neighbours would run in vain."""
    for name, asked in wanted.items():
        for rows in batches_of(np.array(sorted(asked), np.int64), FILL_BATCH):
            yield Batch(name, tuple(rows.tolist()))


class Prefix:
    """The prefix up to some cuts, from pixels or from what is stored, as exact as the prefix itself, of another cut.

    Args:
        task: Its samples and preprocessing.
        model: The model.
        cuts: Block numbers, ascending.
        kind: The engine, which runs on as many of the threads as are fastest now.
        threads: Most threads.
        shallower: Cut and its stored records to start from, for batches that they hold whole.

    Attributes:
        shortened: Samples that did not start from pixels so far.
    """

    def __init__(
        self,
        task: Task,
        model: OpenModel,
        cuts: Sequence[int],
        kind: str,
        threads: int,
        shallower: tuple[int, RecordFile] | None = None,
    ) -> None:
        self._task = task
        self._samples = dict(task.partitions())
        self._cuts = list(cuts)
        self._engine = lru_cache(lambda begin: prefix_engine(model, cuts, kind, threads, begin))
        self._threads = ThreadChoice(1 if kind.startswith((ORT, INT8)) else threads)  # ONNX Runtime has its own
        self._shallower = shallower
        self._reading = Lock()
        self.shortened = 0
        self._decoding: list[float] = []  # seconds a sample, by batch
        flops = [sum(block.flops for block in model.info.blocks[:cut]) for cut in cuts]
        self._shares = {cut: own / max(flops[-1], 1) for cut, own in zip(cuts, flops, strict=True)}

    def seconds_each(self, cut: int, seconds: float) -> float:
        """Return a sample's seconds up to a cut, given those through the whole: decoding, and its part of the FLOPs."""
        decoding = min(seconds, sum(self._decoding) / max(1, len(self._decoding)))
        return decoding + (seconds - decoding) * max(self._shares[cut], 1e-3)

    def over(self, todo: Iterable[Batch]) -> Iterator[tuple[Batch, dict[int, Floats]]]:
        """Yield (batch, float32 [n, *shape] by cut), decoding the next batches while one runs."""
        remaining = iter(todo)
        with ThreadPoolExecutor(DECODERS) as pool:
            ahead: list[tuple[Batch, Future[tuple[int, Floats]]]] = [
                (batch, pool.submit(self._load, batch)) for batch in islice(remaining, AHEAD)
            ]
            try:
                while ahead:
                    batch, loading = ahead.pop(0)
                    begin, value = loading.result()
                    ahead.extend((following, pool.submit(self._load, following)) for following in islice(remaining, 1))
                    count = len(batch.indices)
                    self.shortened += count if begin else 0
                    with self._threads:
                        outputs = self._engine(begin)(value)
                    yield batch, {cut: output[:count] for cut, output in zip(self._cuts, outputs, strict=True)}
            finally:
                for _, loading in ahead:
                    loading.cancel()

    def _load(self, batch: Batch) -> tuple[int, Floats]:
        """Return the block to start at and its input, filled up with the first sample."""
        begin, value = self._stored(batch) or (0, self._pixels(batch))
        return begin, np.concatenate([value, *[value[:1]] * (FILL_BATCH - len(value))])

    def _pixels(self, batch: Batch) -> Floats:
        samples, started = self._samples[batch.partition], time.perf_counter()
        pixels = self._task.batch(samples, batch.indices)
        self._decoding.append((time.perf_counter() - started) / len(batch.indices))
        return pixels

    def _stored(self, batch: Batch) -> tuple[int, Floats] | None:
        """Return what the shallower records hold of a batch; None where they lack any of it."""
        if self._shallower is None:
            return None
        samples, (cut, file) = self._samples[batch.partition], self._shallower
        try:
            with self._reading:
                records = file.read([samples.sample_id(index) for index in batch.indices])
        except BadRecord:
            return None
        return cut, file.codec.decode(records)
