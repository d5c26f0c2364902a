"""The prefix's outputs: run once per sample, written to the store, read back batch by batch."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from tuner.backends.base import Filling, Report
from tuner.backends.memory import PeakMeter
from tuner.backends.torch.model import Loaded, state_hash
from tuner.plan import TrialPlan
from tuner.planner.cost import FILL_BATCH
from tuner.store.codec import calibrate, requantise
from tuner.store.header import StoreKey
from tuner.store.records import RecordFile
from tuner.store.scales import keep_scales, read_scales
from tuner.store.store import Store
from tuner.task import Samples, Task, normalise
from tuner.task.mixing import mixed

KIND = "torch-fp32"
VALIDATION_BITS = 16
CALIBRATION_SAMPLES = 256
DERIVED_AT_ONCE = 256
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pick:
    """Some samples of one split, by index."""

    samples: Samples
    indices: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def ids(self) -> list[str]:
        """Return the samples' content hashes."""
        return [self.samples.sample_id(int(index)) for index in self.indices]

    def labels(self) -> npt.NDArray[np.generic]:
        """Return the samples' labels."""
        return self.samples.labels[self.indices]


def every(samples: Samples) -> Pick:
    """Return all samples of a split."""
    return Pick(samples, np.arange(len(samples)))


def training(task: Task, plan: TrialPlan) -> list[Pick]:
    """Return what one epoch of the plan trains on: the local samples and the mixed-in global ones."""
    picks = [every(task.local.train)]
    if task.global_ is not None and plan.data.alpha > 0:
        picks.append(Pick(task.global_.train, mixed(task.global_.train.labels, plan.data.alpha)))
    return picks


def validation(task: Task) -> list[Pick]:
    """Return what a trial is scored on: the local samples, and the global ones where there are any."""
    return [every(task.local.val)] + ([every(task.global_.val)] if task.global_ is not None else [])


def key(task: Task, loaded: Loaded, split: int, bits: int, scales: str = "") -> StoreKey:
    """Return what must match for a stored feature to be read as right."""
    block = loaded.info.blocks[split]
    return StoreKey(
        prefix=_prefix_hash(loaded, split),
        preprocessing=hashlib.blake2b(json.dumps(asdict(task.input)).encode(), digest_size=16).hexdigest(),
        kind=KIND,
        cut=block.cut,
        bits=bits,
        shape=block.in_shape,
        scales=scales,
    )


@lru_cache(maxsize=128)
def _prefix_hash(loaded: Loaded, split: int) -> str:
    if loaded.chain is None:
        raise ValueError("a model without cut points has no features to store")
    prefix = loaded.chain.prefix(split)
    code = hashlib.blake2b(prefix.code.encode(), digest_size=16).hexdigest()
    return f"{state_hash(prefix)}-{code}"


class Features:
    """Stored features of one split position, at one width.

    Codes of 4, 2 and 1 bits are requantised from the 8-bit file, so that only 8, 16 and 32 bits need the prefix.
    """

    def __init__(self, task: Task, loaded: Loaded, split: int, bits: int, store: Store) -> None:
        low = high = None
        scales = ""
        if bits < VALIDATION_BITS:
            found = read_scales(store.folder, key(task, loaded, split, 32), loaded.task_fingerprint)
            if found is None:
                raise LookupError(f"split {split} has no scales yet")
            low, high, scales = found
        self.file: RecordFile = store.file(key(task, loaded, split, bits, scales), low, high)

    def read(self, ids: Sequence[str]) -> Floats:
        """Return float32 [n, *shape]."""
        return self.file.codec.decode(self.file.read(ids))


def master(bits: int) -> int:
    """Return the width whose records the prefix pass writes for a plan of this width."""
    return bits if bits >= VALIDATION_BITS else 8


def fill(task: Task, loaded: Loaded, plans: Sequence[TrialPlan], store: Store, report: Report) -> Filling:
    """Run the prefix on what the plans need and the store lacks; see `tuner.backends.base.Backend.fill`."""
    meter = PeakMeter()
    report({"resting_bytes": meter.resting})
    wanted = _wanted(task, plans)
    splits = sorted({split for split, _ in wanted})
    if not missing(task, loaded, plans, store):
        derive(task, loaded, plans, store)
        return Filling(0, 0.0, {}, meter.peak_bytes())
    run = _Pass(task, loaded, splits)
    _calibrate(task, loaded, run, store, [split for split, bits in wanted if bits < VALIDATION_BITS])
    files = {at: Features(task, loaded, *at, store).file for at in wanted}
    lacking = {at: set(files[at].missing(list(wanted[at]))) for at in wanted}
    order = {one: source for at in wanted for one, source in wanted[at].items() if one in lacking[at]}
    started, done = time.perf_counter(), 0
    stopped = False
    for ids, outputs in run.over(order):
        for (split, bits), file in files.items():
            rows = [row for row, one in enumerate(ids) if one in lacking[split, bits]]
            if rows:
                file.append([ids[row] for row in rows], file.codec.encode(outputs[split][rows]))
        done += len(ids)
        if report({"filled": done, "of": len(order)}):
            stopped = True
            break
    seconds = time.perf_counter() - started
    each = {split: (seconds / done) * run.share(split) for split in splits} if done else {}
    for (split, _), file in files.items():
        if split in each:
            file.note(each[split])
    if not stopped:
        derive(task, loaded, plans, store)
    return Filling(done, seconds, each, meter.peak_bytes(), stopped)


def missing(task: Task, loaded: Loaded, plans: Sequence[TrialPlan], store: Store) -> int:
    """Return how many samples a filling pass would run the prefix on."""
    lacking: set[str] = set()
    for at, sources in _wanted(task, plans).items():
        try:
            lacking.update(Features(task, loaded, *at, store).file.missing(list(sources)))
        except LookupError:
            lacking.update(sources)
    return len(lacking)


def _wanted(task: Task, plans: Sequence[TrialPlan]) -> dict[tuple[int, int], dict[str, tuple[Samples, int]]]:
    """Return, by split and width, the samples the plans need, by content hash."""
    wanted: dict[tuple[int, int], dict[str, tuple[Samples, int]]] = {}
    for plan in plans:
        for picks, bits in ((training(task, plan), master(plan.cache.bits)), (validation(task), VALIDATION_BITS)):
            entry = wanted.setdefault((plan.split, bits), {})
            for pick in picks:
                entry.update(zip(pick.ids(), ((pick.samples, int(i)) for i in pick.indices), strict=True))
    return wanted


def derive(task: Task, loaded: Loaded, plans: Sequence[TrialPlan], store: Store) -> None:
    """Write the plans' 4-, 2- and 1-bit records from the 8-bit ones."""
    for plan in plans:
        bits = plan.cache.bits
        if bits == master(bits):
            continue
        source = Features(task, loaded, plan.split, 8, store).file
        target = Features(task, loaded, plan.split, bits, store).file
        lacking = target.missing([one for pick in training(task, plan) for one in pick.ids()])
        for begin in range(0, len(lacking), DERIVED_AT_ONCE):
            ids = lacking[begin : begin + DERIVED_AT_ONCE]
            target.append(ids, requantise(source.read(ids), source.codec.shape, bits))


def _calibrate(task: Task, loaded: Loaded, run: "_Pass", store: Store, splits: Sequence[int]) -> None:
    """Fix the scales of every cut that has none: one seeded set of local and global training samples."""
    keys = {split: key(task, loaded, split, 32) for split in splits}
    lacking = [split for split in splits if read_scales(store.folder, keys[split], loaded.task_fingerprint) is None]
    if not lacking:
        return
    sources: dict[str, tuple[Samples, int]] = {}
    for domain in (task.local, task.global_):
        if domain is not None:
            chosen = np.random.default_rng(0).permutation(len(domain.train))[:CALIBRATION_SAMPLES]
            sources.update({domain.train.sample_id(int(i)): (domain.train, int(i)) for i in np.sort(chosen)})
    kept: dict[int, list[Floats]] = {split: [] for split in lacking}
    for _, outputs in run.over(sources):
        for split in lacking:
            kept[split].append(outputs[split])
    for split in lacking:
        low, high = calibrate(np.concatenate(kept.pop(split)))
        keep_scales(store.folder, keys[split], loaded.task_fingerprint, low, high)


class _Pass:
    """The prefix up to several cuts, in one go per batch."""

    def __init__(self, task: Task, loaded: Loaded, splits: Sequence[int]) -> None:
        chain = loaded.chain
        if chain is None:
            raise ValueError("a model without cut points has no prefix")
        positions = [chain.blocks[0].begin, *(chain.split_position(split) for split in splits)]
        self._parts = [
            fast(chain.part(begin, end)) if end > begin else nn.Identity() for begin, end in pairwise(positions)
        ]
        self._splits = list(splits)
        self._task = task
        flops = [sum(block.flops for block in loaded.info.blocks[:split]) for split in splits]
        self._share = {split: one / max(flops[-1], 1) for split, one in zip(splits, flops, strict=True)}

    def share(self, split: int) -> float:
        """Return which part of the whole pass's FLOPs the pass up to `split` needs."""
        return max(self._share[split], 1e-3)

    def over(self, sources: dict[str, tuple[Samples, int]]) -> Iterator[tuple[list[str], dict[int, Floats]]]:
        """Yield (sample ids, float32 [n, *shape] by split), decoding the next batch while one runs."""
        ids = list(sources)
        batches = [ids[begin : begin + FILL_BATCH] for begin in range(0, len(ids), FILL_BATCH)]

        def load(batch: list[str]) -> torch.Tensor:
            raw = np.stack([samples.load(index) for samples, index in (sources[one] for one in batch)])
            return torch.from_numpy(normalise(raw, self._task.input))

        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(load, batches[0]) if batches else None
            for number, batch in enumerate(batches):
                value = ahead.result() if ahead is not None else load(batch)
                if number + 1 < len(batches):
                    ahead = pool.submit(load, batches[number + 1])
                yield batch, self._outputs(value)

    def _outputs(self, value: torch.Tensor) -> dict[int, Floats]:
        outputs: dict[int, Floats] = {}
        with torch.inference_mode():
            value = spatial(value)
            for split, part in zip(self._splits, self._parts, strict=True):
                value = part(value)
                outputs[split] = np.ascontiguousarray(value.numpy())
        return outputs


def fast(part: torch.fx.GraphModule) -> nn.Module:
    """Return an inference copy: norms folded into convolutions, channels last."""
    folded: nn.Module = fuse(part.eval())
    return channels_last(folded).eval()


def channels_last(module: nn.Module) -> nn.Module:
    """Put a module's four-dimensional weights in the layout that convolutions are fastest in."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
    return module


def spatial(value: torch.Tensor) -> torch.Tensor:
    """Return maps [n, C, H, W] with channels last in memory; anything else as it is."""
    maps = 4
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == maps else value
