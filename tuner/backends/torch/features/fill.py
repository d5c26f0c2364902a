"""Filling: the prefix runs once on what plans need and the store lacks."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from tuner.arrays import Floats
from tuner.backends.base import Filling
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.batches import Batch, batches
from tuner.backends.torch.features.int8 import QuantisingStopped
from tuner.backends.torch.features.needs import CutBits, Indices, absent, needed, union
from tuner.backends.torch.features.scaling import fix_scales
from tuner.backends.torch.features.selection import Selection, training_selections
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import CODED_BITS, feature_records
from tuner.process_memory import PeakMeter
from tuner.store.files.disk import StoreFull, read_cost
from tuner.store.files.records import BadRecord, RecordFile

#: A shorter pass measures its start-up.
MEASURED_SAMPLES = 64


def fill(access: Access, plans: Sequence[TrialPlan]) -> Filling:
    """Run the prefix on what the plans need and the store lacks; see `tuner.backends.base.Session.fill`."""
    meter = PeakMeter()
    access.report({"resting_bytes": meter.resting})
    wanted = needed(access.task, plans)
    if not any(absent(access, at, selections) for at, selections in wanted.items()):
        derive(access, plans)
        folders = {at: access.folder(*at) for at in wanted}
        return Filling(0, 0.0, _costs(folders), meter.peak_bytes(), _complete(plans, folders))
    cuts = sorted({cut for cut, _ in wanted})
    try:
        prefix = access.prefix(cuts)
    except QuantisingStopped:
        return Filling(0, 0.0, {}, meter.peak_bytes(), {}, stopped=True)
    started, done, stopped = time.perf_counter(), 0, False
    held = fix_scales(access, prefix, sorted({cut for cut, bits in wanted if bits < VALIDATION_BITS}))
    files, absences = _open(access, wanted)
    todo = list(batches(access.task, union(absences)))
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
    absences = {at: absent(access, at, selections) for at, selections in needed(access.task, plans).items()}
    return sum(map(len, union(absences).values()))


def _open(
    access: Access, wanted: Mapping[CutBits, Sequence[Selection]]
) -> tuple[dict[CutBits, RecordFile], dict[CutBits, Indices]]:
    """Open the files that take records; return them, and the samples that each does not have."""
    files: dict[CutBits, RecordFile] = {}
    for at in wanted:
        try:
            files[at] = access.file(*at)
        except StoreFull as error:
            access.report({"warning": f"{error}; these features are computed when they are needed"})
    return files, {at: absent(access, at, wanted[at]) for at in files}


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
            access.report({"warning": f"{error}; these features are computed when they are needed"})


DERIVED_AT_ONCE = 256


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
    """Write one cut's records.

    Raises:
        StoreFull: There is no room.
        LookupError: The cut has no scales yet.
    """
    source, target = access.file(cut, CODED_BITS), access.file(cut, plan.cache.bits)
    training = training_selections(access.task, replace(plan, data=plan.pool))
    missing = target.missing([sample_id for selection in training for sample_id in selection.ids()])
    for begin in range(0, len(missing), DERIVED_AT_ONCE):
        ids = missing[begin : begin + DERIVED_AT_ONCE]
        try:
            codes = source.read(ids)
        except BadRecord as bad:  # reported, and computed again, when they are read
            ids = [sample_id for sample_id in ids if sample_id not in bad.sample_ids]
            codes = source.read(ids)
        target.append(ids, target.codec.narrow(codes))
