"""The prefix's outputs: what a plan needs, what the store lacks, and filling it."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tuner.backends.base import Filling, Report
from tuner.backends.memory import PeakMeter
from tuner.backends.torch.model import Loaded, state_hash, structure_hash
from tuner.backends.torch.picks import Pick, calibrating, every, mixed_in, training, validation
from tuner.backends.torch.prefix import Batch, Floats, Prefix, Shallower, batches, splits_of
from tuner.plan import TrialPlan
from tuner.planner.cost import CODED_BITS, EXACT_BITS, FILL_BATCH, HELD_BYTES, records
from tuner.store.codec import Codec, calibrate, requantise
from tuner.store.header import StoreKey
from tuner.store.kinds import chosen_kind
from tuner.store.records import BadRecord, RecordFile, StoreFull, read_cost
from tuner.store.scales import Scales, keep_scales, read_scales, scales
from tuner.store.store import Store
from tuner.task import Task

VALIDATION_BITS = 16
CALIBRATION_SAMPLES = 256
CALIBRATION_POSITIONS = 64
DERIVED_AT_ONCE = 256
#: A shorter pass measures its start-up.
MEASURED_SAMPLES = 64
At = tuple[int, int]  # split and bits


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A task's features in a store.

    Attributes:
        task: Its samples.
        loaded: The model whose prefix makes the features.
        store: Where they are kept.
        threads: The prefix runs with.
        report: Hears of progress and warnings.
        unkept: Scales by split that a full disk left no room for.
    """

    task: Task
    loaded: Loaded
    store: Store
    threads: int
    report: Report
    unkept: dict[int, Scales] = field(default_factory=dict)

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

    def scales(self, split: int) -> Scales | None:
        """Return the cut's scales; None where they are not known yet."""
        known = self.unkept.get(split)
        return known or read_scales(self.store.folder, self.key(split, EXACT_BITS), self.loaded.task_fingerprint)

    def codec(self, split: int, bits: int) -> Codec:
        """Return what codes the records of one cut at one width.

        Raises:
            LookupError: The width needs scales, and the cut has none yet.
        """
        low, high, _ = self._needed_scales(split, bits)
        return Codec(bits, self.loaded.info.blocks[split].in_shape, low, high)

    def folder(self, split: int, bits: int) -> Path:
        """Return where the records of one cut at one width lie, or would lie."""
        return self.store.path(self.key(split, bits, self._needed_scales(split, bits)[2]))

    def file(self, split: int, bits: int) -> RecordFile:
        """Open the records of one cut at one width, and keep them from being evicted while this process lives.

        Raises:
            LookupError: The width needs scales, and the cut has none yet.
            StoreFull: There is no room for even an empty file.
        """
        low, high, scales = self._needed_scales(split, bits)
        key = self.key(split, bits, scales)
        self.store.kept.add(self.store.path(key))
        file = self.store.file(key, low, high)
        for notice in file.take_notices():
            self.report({"warning": notice})
        return file

    def _needed_scales(self, split: int, bits: int) -> Scales | tuple[None, None, str]:
        if bits >= VALIDATION_BITS:
            return None, None, ""
        found = self.scales(split)
        if found is None:
            raise LookupError(f"split {split} has no scales yet")
        return found

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
        folders = {at: access.folder(*at) for at in wanted}
        return Filling(0, 0.0, _costs(folders), meter.peak_bytes(), _whole(plans, folders))
    splits = sorted({split for split, _ in wanted})
    prefix = access.prefix(splits)
    started, done, stopped = time.perf_counter(), 0, False
    held = _calibrate(access, prefix, sorted({split for split, bits in wanted if bits < VALIDATION_BITS}))
    files, lacking = _opened(access, wanted)
    todo = list(batches(access.task, _union(lacking)))
    ready = ((batch, held.pop(batch)) for batch in todo if batch in held)
    later = [batch for batch in todo if batch not in held]
    rest = prefix.over(batch for batch in later if _is_lacking(files, lacking, batch))
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
    if done >= MEASURED_SAMPLES and not prefix.shortened:  # else the seconds say little of an empty store
        for (split, _), file in files.items():
            with suppress(StoreFull):
                file.note(prefix.seconds_each(split, seconds / done))
    if not stopped:
        derive(access, plans)
    folders = {at: file.folder for at, file in files.items()}
    return Filling(done, seconds, _costs(folders), meter.peak_bytes(), _whole(plans, folders), stopped)


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
                    try:
                        codes = source.read(ids)
                    except BadRecord as bad:  # told, and computed again, when they are read
                        ids = [one for one in ids if one not in bad.sample_ids]
                        codes = source.read(ids)
                    target.append(ids, requantise(codes, source.codec.shape, bits))
            except (StoreFull, LookupError) as error:
                access.report({"warning": f"{bits}-bit features of {plan.model.blocks[split].cut}: {error}"})


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


def _is_lacking(files: Mapping[At, RecordFile], lacking: Mapping[At, Mapping[str, set[int]]], batch: Batch) -> bool:
    """Return whether a file that still takes records lacks any of the batch."""
    return any(not lacking[at].get(batch.split, set()).isdisjoint(batch.indices) for at in list(files))


def _whole(plans: Sequence[TrialPlan], folders: Mapping[At, Path]) -> dict[At, tuple[Path, ...]]:
    """Return the record files of each plan, training and validation, where neither ran out of room."""
    needs = {at: (at, (at[0], VALIDATION_BITS)) for plan in plans for at in records(plan)}
    return {
        at: tuple(folders[one] for one in both) for at, both in needs.items() if all(one in folders for one in both)
    }


def _costs(folders: Mapping[At, Path]) -> dict[int, float]:
    """Return the seconds to compute one record, by split, as measured by the pass that filled the file."""
    found = {split: read_cost(folder) for (split, _), folder in folders.items()}
    return {split: seconds for split, seconds in found.items() if seconds is not None}


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
            wanted[at] = [every(task, "local.train"), *mixed_in(task, plan)]
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
        file = access.file(*at) if at[1] >= VALIDATION_BITS or access.scales(at[0]) else None
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
    unscaled = [split for split in splits if access.scales(split) is None]
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
        key = access.key(split, EXACT_BITS)
        try:
            keep_scales(access.store, key, access.loaded.task_fingerprint, low, high)
        except StoreFull as error:
            access.unkept[split] = scales(key, low, high)
            access.report({"warning": f"{error}; scales are found anew by every trial"})
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
    return f"{state_hash(prefix)}-{structure_hash(prefix)}"
