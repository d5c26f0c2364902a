"""Filling: the prefix runs once on what plans need and the store lacks."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice, zip_longest
from pathlib import Path

import numpy as np

from tuner.arrays import Floats
from tuner.backends.base import Filling
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.int8 import QuantisingStopped
from tuner.backends.torch.features.prefix import Batch, Prefix, batches
from tuner.backends.torch.features.reader import sound_records
from tuner.backends.torch.features.selection import (
    Selection,
    calibration_selection,
    pool_selections,
    refit_selections,
    scored_selections,
    shared_partition,
    training_selections,
)
from tuner.machine.process_memory import PeakMeter
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS, EXACT_BITS, feature_records
from tuner.planner.device import CALIBRATION_SAMPLES, FILL_BATCH, UNSCALED_BYTES
from tuner.store.codec import calibrate
from tuner.store.files.disk import StoreFull, read_cost
from tuner.store.files.records import RecordFile
from tuner.store.kept import scales, write_scales
from tuner.task import Task

#: A shorter pass measures its start-up.
MEASURED_SAMPLES = 64
#: Positions of a map that scales are taken from, and the fewest batches, where a pass is asked to stop.
CALIBRATION_POSITIONS, LEAST_BATCHES = 64, 4
#: Records that are made of others at a time.
DERIVED_AT_ONCE = 256
CutBits = tuple[int, int]
#: Indices of samples, by partition.
Indices = dict[str, set[int]]


def fill(access: Access, plans: Sequence[TrialPlan]) -> Filling:
    """Run the prefix on what the plans need and the store lacks; see `tuner.backends.base.Session.fill`."""
    meter = PeakMeter()
    access.report({"resting_bytes": meter.resting})
    wanted = needed(access.task, plans)
    if not any(_absent(access, at, selections) for at, selections in wanted.items()):
        derive(access, plans)
        folders = {at: access.folder(*at) for at in wanted}
        return Filling(0, 0.0, _costs(folders), meter.peak_bytes(), _complete(plans, folders))
    cuts = sorted({cut for cut, _ in wanted})
    try:
        prefix = access.prefix(cuts)
    except QuantisingStopped:
        return Filling(0, 0.0, {}, meter.peak_bytes(), {}, stopped=True)
    started, done, stopped = time.perf_counter(), 0, False
    held = _fix_scales(access, prefix, sorted({cut for cut, bits in wanted if bits < VALIDATION_BITS}))
    files, absences = _open(access, wanted)
    todo = list(batches(access.task, _union(absences)))
    ready = ((batch, held.pop(batch)) for batch in todo if batch in held)
    later = [batch for batch in todo if batch not in held]
    rest = prefix.over(batch for batch in later if _is_needed(files, absences, batch))
    samples = sum(len(batch.indices) for batch in todo)
    with ThreadPoolExecutor(1) as writer:
        writing: Future[None] | None = None
        for batch, outputs in chain(ready, rest):
            if writing is not None:
                writing.result()
            writing = writer.submit(_write, access, files, absences, batch, outputs)
            done += len(batch.indices)
            if access.report({"filled": done, "of": samples}) and not held:
                stopped = True
                break
        if writing is not None:
            writing.result()
    seconds = time.perf_counter() - started
    if done >= MEASURED_SAMPLES and not prefix.shortened:  # else the seconds say little of an empty store
        for (cut, _), file in files.items():
            with suppress(StoreFull):
                file.note(prefix.seconds_each(cut, seconds / done))
    if not stopped:
        derive(access, plans)
    folders = {at: file.folder for at, file in files.items()}
    return Filling(done, seconds, _costs(folders), meter.peak_bytes(), _complete(plans, folders), stopped)


def missing(access: Access, plans: Sequence[TrialPlan]) -> int:
    """Return how many samples a filling pass would run the prefix on."""
    absences = {at: _absent(access, at, selections) for at, selections in needed(access.task, plans).items()}
    return sum(map(len, _union(absences).values()))


def needed(task: Task, plans: Sequence[TrialPlan]) -> dict[CutBits, list[Selection]]:
    """Return, by cut and width, what the plans need; of several shares of a partition the largest."""
    by_width: dict[CutBits, dict[tuple[str, float], Selection]] = {}

    def need(at: CutBits, selections: Sequence[Selection], of: float = 1.0) -> None:
        own = by_width.setdefault(at, {})
        for one in selections:
            if len(own.get((one.partition, of), ())) < len(one):
                own[one.partition, of] = one

    for plan in plans:
        share = plan.data.share
        training = [shared_partition(task, "local.train", share), *pool_selections(task, plan)]
        thresholds = [calibration_selection(task, plan)] if plan.heads.exits else []
        of_all_trainings = replace(plan.data, fold=0)
        scored = [one for own in scored_selections(task, of_all_trainings).values() for one in own]
        scored += refit_selections(task, plan.data)
        for at in feature_records(plan):
            need(at, training)
        for cut in plan.cuts:
            need((cut, VALIDATION_BITS), scored)
            need((cut, VALIDATION_BITS), thresholds, of=share)  # of a larger share it takes others, not more
    return {at: list(own.values()) for at, own in by_width.items()}


def _absent(access: Access, at: CutBits, selections: Sequence[Selection]) -> Indices:
    """Return the samples that a file does not have."""
    indices: Indices = {}
    try:
        file = access.file(*at) if at[1] >= VALIDATION_BITS or access.scales(at[0]) else None
    except StoreFull:
        file = None
    for selection in selections:
        ids = selection.ids()
        missing = set(ids if file is None else file.missing(ids))
        pairs = zip(selection.indices, ids, strict=True)
        unstored = {int(index) for index, sample_id in pairs if sample_id in missing}
        if unstored:
            indices.setdefault(selection.partition, set()).update(unstored)
    return indices


def _union(absences: Mapping[CutBits, Indices]) -> Indices:
    """Return the samples that any file does not have."""
    indices: Indices = {}
    for by_partition in absences.values():
        for partition, own in by_partition.items():
            indices.setdefault(partition, set()).update(own)
    return indices


def _open(
    access: Access, wanted: Mapping[CutBits, Sequence[Selection]]
) -> tuple[dict[CutBits, RecordFile], dict[CutBits, Indices]]:
    """Open the files that take records; return them, and the samples that each does not have."""
    files: dict[CutBits, RecordFile] = {}
    for at in wanted:
        try:
            files[at] = access.file(*at)
        except StoreFull as error:
            access.report({"warning": f"{error}; those beyond are computed when they are needed"})
    return files, {at: _absent(access, at, wanted[at]) for at in files}


def _is_needed(files: Mapping[CutBits, RecordFile], absences: Mapping[CutBits, Indices], batch: Batch) -> bool:
    """Return whether a file that still takes records lacks any of the batch."""
    return any(not absences[at].get(batch.partition, set()).isdisjoint(batch.indices) for at in list(files))


def _complete(plans: Sequence[TrialPlan], folders: Mapping[CutBits, Path]) -> dict[CutBits, tuple[Path, ...]]:
    """Return the record files of each plan, training and validation, where neither ran out of room."""
    needs = {at: (at, (at[0], VALIDATION_BITS)) for plan in plans for at in feature_records(plan)}
    return {
        at: tuple(folders[own] for own in both) for at, both in needs.items() if all(own in folders for own in both)
    }


def _costs(folders: Mapping[CutBits, Path]) -> dict[int, float]:
    """Return the seconds to compute one record, by cut, as measured by the pass that filled the file."""
    costs = {cut: read_cost(folder) for (cut, _), folder in folders.items()}
    return {cut: seconds for cut, seconds in costs.items() if seconds is not None}


def _write(
    access: Access,
    files: dict[CutBits, RecordFile],
    absences: Mapping[CutBits, Indices],
    batch: Batch,
    outputs: Mapping[int, Floats],
) -> None:
    """Append a batch to every file that lacks any of it; a file without room takes no more."""
    samples = dict(access.task.partitions())[batch.partition]
    for (cut, bits), file in list(files.items()):
        wanted = absences[cut, bits].get(batch.partition, ())
        rows = [row for row, index in enumerate(batch.indices) if index in wanted]
        if not rows:
            continue
        try:
            ids = [samples.sample_id(batch.indices[row]) for row in rows]
            file.append(ids, file.codec.encode(outputs[cut][rows]))
        except StoreFull as error:
            del files[cut, bits]
            access.report({"warning": f"{error}; those beyond are computed when they are needed"})


def derive(access: Access, plans: Sequence[TrialPlan]) -> None:
    """Write the plans' 4-, 2- and 1-bit records from the 8-bit ones; what has no room is derived when it is read."""
    for plan in plans:
        bits = plan.cache.bits
        for cut in [cut for cut, width in feature_records(plan) if width == CODED_BITS != bits]:
            try:
                _derive(access, plan, cut)
            except (StoreFull, LookupError) as error:
                access.report({"warning": f"{bits}-bit features of {plan.model.blocks[cut].cut}: {error}"})


def _derive(access: Access, plan: TrialPlan, cut: int) -> None:
    source, target = access.file(cut, CODED_BITS), access.file(cut, plan.cache.bits)
    training = training_selections(access.task, replace(plan, data=replace(plan.pool, refit=False)))
    missing = target.missing([sample_id for selection in training for sample_id in selection.ids()])
    for begin in range(0, len(missing), DERIVED_AT_ONCE):  # what is not sound is computed again when it is read
        ids, codes = sound_records(source, missing[begin : begin + DERIVED_AT_ONCE])
        target.append(ids, target.codec.narrow(codes))


def _fix_scales(access: Access, prefix: Prefix, cuts: Sequence[int]) -> dict[Batch, dict[int, Floats]]:
    """Fix the scales of every cut that has none, on the local and global training samples that are filled first.

    Returns:
        What was computed for it, as far as it may be held: these batches need not run again.
    """
    unscaled = [cut for cut in cuts if access.scales(cut) is None]
    if not unscaled:
        return {}
    thinned: dict[int, list[Floats]] = {cut: [] for cut in unscaled}
    held: dict[Batch, dict[int, Floats]] = {}
    room = UNSCALED_BYTES
    todo = _calibration_batches(access.task)
    for number, (batch, outputs) in enumerate(prefix.over(todo)):
        enough = access.report({"calibrated": number + 1, "of": len(todo)}) and number + 1 >= LEAST_BATCHES
        for cut in unscaled:  # at most 64 positions, evenly spread: quantiles need no more
            flat = outputs[cut].reshape(*outputs[cut].shape[:2], -1)
            step = -(-flat.shape[2] // CALIBRATION_POSITIONS)
            thinned[cut].append(np.ascontiguousarray(flat[:, :, ::step]))
        room -= sum(output.nbytes for output in outputs.values())
        if room >= 0:
            held[batch] = outputs
        if enough:
            break
    for cut in unscaled:
        low, high = calibrate(np.concatenate(thinned.pop(cut)))
        key = access.key(cut, EXACT_BITS)
        try:
            write_scales(access.store, key, access.loaded.task_fingerprint, low, high)
        except StoreFull as error:
            access.unstored[cut] = scales(key, low, high)
            access.report({"warning": f"{error}; every trial computes the scales anew"})
    return held


def _calibration_batches(task: Task) -> list[Batch]:
    """Return the 256 training samples that are filled first, of the local ones and of the global ones, in turns."""
    domains = {"local": task.local, "global": task.global_}
    whole = ({f"{name}.train": set(range(len(one.train)))} for name, one in domains.items() if one is not None)
    first = (islice(batches(task, wanted), CALIBRATION_SAMPLES // FILL_BATCH) for wanted in whole)
    return [batch for pair in zip_longest(*first) for batch in pair if batch is not None]
