"""The prefix's outputs: what a plan needs, what the store lacks, filling it, and reading it back batch by batch."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from tuner.backends.base import Filling, Report
from tuner.backends.memory import PeakMeter
from tuner.backends.torch.model import Loaded, state_hash
from tuner.backends.torch.prefix import Batch, Floats, Prefix, Shallower, batches, splits_of
from tuner.plan import TrialPlan
from tuner.planner.cost import CODED_BITS, EXACT_BITS, FILL_BATCH, HELD_BYTES, records
from tuner.store.codec import calibrate, requantise
from tuner.store.header import StoreKey
from tuner.store.kinds import chosen_kind
from tuner.store.records import BadRecord, RecordFile, StoreFull
from tuner.store.scales import keep_scales, read_scales
from tuner.store.store import Store
from tuner.task import Samples, Task
from tuner.task.mixing import mixed
from tuner.task.split import stratified_holdout

VALIDATION_BITS = 16
CALIBRATION_SAMPLES = 256
CALIBRATION_POSITIONS = 64
DERIVED_AT_ONCE = 256
CALIBRATED_SHARE, CALIBRATED_LEAST, CALIBRATED_MOST = 0.2, 50, 0.5
At = tuple[int, int]  # split and bits


@dataclass(frozen=True, slots=True)
class Pick:
    """Some samples of one split, by index."""

    split: str
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


def every(task: Task, split: str) -> Pick:
    """Return all samples of a split (``"local.val"``)."""
    samples = splits_of(task)[split]
    return Pick(split, samples, np.arange(len(samples)))


def training(task: Task, plan: TrialPlan) -> list[Pick]:
    """Return what one epoch of the plan trains on: the local samples and the mixed-in global ones."""
    local = every(task, "local.train")
    if plan.heads.exits:
        local = Pick(local.split, local.samples, np.setdiff1d(local.indices, calibrating(task).indices))
    return [local, *_mixed_in(task, plan)]


def calibrating(task: Task) -> Pick:
    """Return the local training samples on which thresholds of exits are set, and which train nothing: a fifth.

    At least 50, but at most half. Source: PersEPhonEE, calibration on held-out data of the user.
    """
    samples = task.local.train
    share = min(CALIBRATED_MOST, max(CALIBRATED_SHARE, CALIBRATED_LEAST / len(samples)))
    return Pick("local.train", samples, stratified_holdout(samples.labels, share)[1])


def _mixed_in(task: Task, plan: TrialPlan) -> list[Pick]:
    if task.global_ is None or plan.data.alpha == 0:
        return []
    return [Pick("global.train", task.global_.train, mixed(task.global_.train.labels, plan.data.alpha))]


def validation(task: Task) -> list[Pick]:
    """Return what a trial is scored on: the local samples, and the global ones where there are any."""
    return [every(task, split) for split in ("local.val", "global.val") if split in splits_of(task)]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A task's features in a store.

    Attributes:
        task: Its samples.
        loaded: The model whose prefix makes the features.
        store: Where they are kept.
        threads: The prefix runs with.
        report: Hears of progress and warnings.
    """

    task: Task
    loaded: Loaded
    store: Store
    threads: int
    report: Report

    @property
    def kind(self) -> str:
        """The engine that computes the prefix."""
        return chosen_kind(self.store.folder, self.loaded.info.fingerprint, self.threads)

    def key(self, split: int, bits: int, scales: str = "") -> StoreKey:
        """Return what must match for a stored feature to be read as right."""
        block = self.loaded.info.blocks[split]
        return StoreKey(
            prefix=_prefix_hash(self.loaded, split),
            preprocessing=hashlib.blake2b(json.dumps(asdict(self.task.input)).encode(), digest_size=16).hexdigest(),
            kind=self.kind,
            cut=block.cut,
            bits=bits,
            shape=block.in_shape,
            scales=scales,
        )

    def has_scales(self, split: int) -> bool:
        """Return whether the cut's scales are known."""
        return read_scales(self.store.folder, self.key(split, 32), self.loaded.task_fingerprint) is not None

    def file(self, split: int, bits: int) -> RecordFile:
        """Open the records of one cut at one width, and keep them from being evicted while this process lives.

        Raises:
            LookupError: The width needs scales, and the cut has none yet.
            StoreFull: There is no room for even an empty file.
        """
        low = high = None
        scales = ""
        if bits < VALIDATION_BITS:
            found = read_scales(self.store.folder, self.key(split, 32), self.loaded.task_fingerprint)
            if found is None:
                raise LookupError(f"split {split} has no scales yet")
            low, high, scales = found
        key = self.key(split, bits, scales)
        self.store.kept.add(self.store.path(key))
        file = self.store.file(key, low, high)
        for notice in file.take_notices():
            self.report({"warning": notice})
        return file

    def prefix(self, splits: Sequence[int]) -> Prefix:
        """Return the prefix up to some splits, ascending; it starts from stored 32-bit records where there are any.

        Fewer bits would do too, but then a record would depend on which way it was computed.
        """
        at = next((s for s in range(min(splits) - 1, 0, -1) if self.store.path(self.key(s, EXACT_BITS)).exists()), None)
        shallower = Shallower(at, self.file(at, EXACT_BITS)) if at is not None else None
        return Prefix(self.task, self.loaded, splits, self.kind, self.threads, shallower)


def fill(access: Access, plans: Sequence[TrialPlan]) -> Filling:
    """Run the prefix on what the plans need and the store lacks; see `tuner.backends.base.Backend.fill`."""
    meter = PeakMeter()
    access.report({"resting_bytes": meter.resting})
    wanted = _wanted(access.task, plans)
    if not any(_lacking(access, at, picks) for at, picks in wanted.items()):
        derive(access, plans)
        return Filling(0, 0.0, {}, meter.peak_bytes())
    splits = sorted({split for split, _ in wanted})
    prefix = access.prefix(splits)
    started, done, stopped = time.perf_counter(), 0, False
    held = _calibrate(access, prefix, sorted({split for split, bits in wanted if bits < VALIDATION_BITS}))
    files, lacking = _opened(access, wanted)
    todo = list(batches(access.task, _union(lacking)))
    ready = ((batch, held.pop(batch)) for batch in todo if batch in held)
    rest = prefix.over([batch for batch in todo if batch not in held])
    of = sum(len(batch.indices) for batch in todo)
    with ThreadPoolExecutor(1) as writer:
        writing: Future[None] | None = None
        for batch, outputs in chain(ready, rest):
            if writing is not None:
                writing.result()
            writing = writer.submit(_write, access, files, lacking, batch, outputs)
            done += len(batch.indices)
            if access.report({"filled": done, "of": of}):
                stopped = True
                break
        if writing is not None:
            writing.result()
    seconds = time.perf_counter() - started
    from_pixels = done and not prefix.shortened  # else the seconds say nothing of an empty store
    each = {split: (seconds / done) * prefix.share(split) for split in splits} if from_pixels else {}
    for (split, _), file in files.items():
        if split in each:
            file.note(each[split])
    if not stopped:
        derive(access, plans)
    return Filling(done, seconds, each, meter.peak_bytes(), stopped)


def missing(access: Access, plans: Sequence[TrialPlan]) -> int:
    """Return how many samples a filling pass would run the prefix on."""
    lacking = {at: _lacking(access, at, picks) for at, picks in _wanted(access.task, plans).items()}
    return sum(map(len, _union(lacking).values()))


def derive(access: Access, plans: Sequence[TrialPlan]) -> None:
    """Write the plans' 4-, 2- and 1-bit records from the 8-bit ones; what has no room is derived when it is read."""
    for plan in plans:
        bits = plan.cache.bits
        for split in [cut for cut, width in records(plan) if width == CODED_BITS != bits]:
            try:
                source, target = access.file(split, CODED_BITS), access.file(split, bits)
                lacking = target.missing([one for pick in training(access.task, plan) for one in pick.ids()])
                for begin in range(0, len(lacking), DERIVED_AT_ONCE):
                    ids = lacking[begin : begin + DERIVED_AT_ONCE]
                    target.append(ids, requantise(source.read(ids), source.codec.shape, bits))
            except (StoreFull, BadRecord) as error:
                access.report({"warning": f"{bits}-bit features of {plan.model.blocks[split].cut}: {error}"})


class Reader:
    """Reads features; what the store lacks, or holds damaged, is computed again and the user told.

    Args:
        access: The task's features.
        split: Of the plan.
        bits: Width of the records.
        picks: The rows that will be read.
    """

    def __init__(self, access: Access, split: int, bits: int, picks: Sequence[Pick]) -> None:
        self._access, self._split = access, split
        self._file = access.file(split, bits)
        self._where = {
            one: (pick.split, int(i)) for pick in picks for one, i in zip(pick.ids(), pick.indices, strict=True)
        }
        self._prefix: Prefix | None = None
        self._told = False

    def read(self, ids: Sequence[str]) -> Floats:
        """Return float32 [n, *shape]."""
        try:
            return self._file.codec.decode(self._file.read(ids))
        except BadRecord as bad:
            again = self._computed(bad.sample_ids)
        whole = [one for one in ids if one not in again]
        kept = dict(zip(whole, self._file.read(whole), strict=True))
        return self._file.codec.decode(np.stack([again[one] if one in again else kept[one] for one in ids]))

    def _computed(self, ids: Sequence[str]) -> dict[str, npt.NDArray[np.uint8]]:
        """Return records computed again, and put them back where there is room."""
        if not self._told:
            self._told = True
            text = f"{len(ids)} stored features were missing or damaged and are computed again"
            self._access.report({"warning": text})
        if self._prefix is None:
            self._prefix = self._access.prefix([self._split])
        wanted: dict[str, set[int]] = {}
        for one in ids:
            split, index = self._where[one]
            wanted.setdefault(split, set()).add(index)
        samples = splits_of(self._access.task)
        found: dict[str, npt.NDArray[np.uint8]] = {}
        for batch, outputs in self._prefix.over(list(batches(self._access.task, wanted))):
            records = self._file.codec.encode(outputs[self._split])
            for index, record in zip(batch.indices, records, strict=True):
                if index in wanted[batch.split]:
                    found[samples[batch.split].sample_id(index)] = record
        with suppress(StoreFull):  # told when it was filled; the records serve this batch
            self._file.append(list(found), np.stack(list(found.values())))
        return {one: found[one] for one in ids}


def _opened(
    access: Access, wanted: Mapping[At, Sequence[Pick]]
) -> tuple[dict[At, RecordFile], dict[At, dict[str, set[int]]]]:
    files: dict[At, RecordFile] = {}
    for at in wanted:
        try:
            files[at] = access.file(*at)
        except StoreFull as error:
            access.report({"warning": f"{error}; these features are computed when they are needed"})
    return files, {at: _lacking(access, at, wanted[at]) for at in files}


def _write(
    access: Access,
    files: dict[At, RecordFile],
    lacking: Mapping[At, Mapping[str, set[int]]],
    batch: Batch,
    outputs: Mapping[int, Floats],
) -> None:
    """Append a batch to every file that lacks any of it; a file without room takes no more."""
    samples = splits_of(access.task)[batch.split]
    for (split, bits), file in list(files.items()):
        rows = [row for row, index in enumerate(batch.indices) if index in lacking[split, bits].get(batch.split, ())]
        if not rows:
            continue
        try:
            ids = [samples.sample_id(batch.indices[row]) for row in rows]
            file.append(ids, file.codec.encode(outputs[split][rows]))
        except StoreFull as error:
            del files[split, bits]
            access.report({"warning": f"{error}; these features are computed when they are needed"})


def _wanted(task: Task, plans: Sequence[TrialPlan]) -> dict[At, list[Pick]]:
    """Return, by split and width, what the plans need; of several fractions of the global data the largest."""
    wanted: dict[At, list[Pick]] = {}
    for plan in sorted(plans, key=lambda plan: plan.data.alpha):
        for at in records(plan):
            wanted[at] = [every(task, "local.train"), *_mixed_in(task, plan)]
    for plan in plans:
        exact = [calibrating(task)] if plan.heads.exits else []
        for cut in plan.cuts:
            at = cut, VALIDATION_BITS
            known = [pick for pick in wanted.get(at, []) if not pick.split.endswith(".val")]
            wanted[at] = [*known, *exact, *validation(task)]
    return wanted


def _lacking(access: Access, at: At, picks: Sequence[Pick]) -> dict[str, set[int]]:
    """Return the indices, by split, that a file lacks."""
    found: dict[str, set[int]] = {}
    try:
        file = access.file(*at) if at[1] >= VALIDATION_BITS or access.has_scales(at[0]) else None
    except StoreFull:
        file = None
    for pick in picks:
        ids = pick.ids()
        absent = set(ids if file is None else file.missing(ids))
        indices = {int(index) for index, one in zip(pick.indices, ids, strict=True) if one in absent}
        if indices:
            found.setdefault(pick.split, set()).update(indices)
    return found


def _union(lacking: Mapping[At, Mapping[str, set[int]]]) -> dict[str, set[int]]:
    union: dict[str, set[int]] = {}
    for by_split in lacking.values():
        for split, indices in by_split.items():
            union.setdefault(split, set()).update(indices)
    return union


def _calibrate(access: Access, prefix: Prefix, splits: Sequence[int]) -> dict[Batch, dict[int, Floats]]:
    """Fix the scales of every cut that has none: one seeded set of local and global training samples.

    Returns:
        What was computed for it, as far as it may be held: these batches need not run again.
    """
    unscaled = [split for split in splits if not access.has_scales(split)]
    if not unscaled:
        return {}
    thinned: dict[int, list[Floats]] = {split: [] for split in unscaled}
    held: dict[Batch, dict[int, Floats]] = {}
    room = HELD_BYTES
    todo = _calibration_batches(access.task)
    for number, (batch, outputs) in enumerate(prefix.over(todo)):
        access.report({"calibrated": number + 1, "of": len(todo)})
        for split in unscaled:
            thinned[split].append(_thinned(outputs[split]))
        room -= sum(output.nbytes for output in outputs.values())
        if room >= 0:
            held[batch] = outputs
    for split in unscaled:
        low, high = calibrate(np.concatenate(thinned.pop(split)))
        keep_scales(access.store.folder, access.key(split, 32), access.loaded.task_fingerprint, low, high)
    return held


def _calibration_batches(task: Task) -> list[Batch]:
    """Return 256 local training samples, drawn with a seed, and the 256 global ones that are mixed in first."""
    count = CALIBRATION_SAMPLES // FILL_BATCH
    local = list(batches(task, {"local.train": set(range(len(task.local.train)))}))
    drawn = [local[number] for number in np.sort(np.random.default_rng(0).permutation(len(local))[:count])]
    mixing = {"global.train": set(range(len(task.global_.train)))} if task.global_ is not None else {}
    return drawn + list(islice(batches(task, mixing), count))


def _thinned(maps: Floats) -> Floats:
    """Return [n, C, at most 64 positions], evenly spread: quantiles need no more."""
    flat = maps.reshape(*maps.shape[:2], -1)
    return np.ascontiguousarray(flat[:, :, :: -(-flat.shape[2] // CALIBRATION_POSITIONS)])


@lru_cache(maxsize=128)
def _prefix_hash(loaded: Loaded, split: int) -> str:
    if loaded.chain is None:
        raise ValueError("a model without cut points has no features to store")
    prefix = loaded.chain.prefix(split)
    code = hashlib.blake2b(prefix.code.encode(), digest_size=16).hexdigest()
    return f"{state_hash(prefix)}-{code}"
