"""Reading features batch by batch; what is not there is computed again."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from tuner.arrays import Codes, Floats
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.prefix import Prefix, batches, exactly
from tuner.backends.torch.features.selection import VALIDATION, Selection
from tuner.planner.data_terms import CODED_BITS
from tuner.store.files.disk import StoreFull
from tuner.store.files.records import BadRecord, RecordFile


def sound_records(file: RecordFile, ids: list[str]) -> tuple[list[str], Codes]:
    """Return those of some samples whose records are neither missing nor damaged, and these records."""
    try:
        return ids, file.read(ids)
    except BadRecord as bad:
        sound = [sample_id for sample_id in ids if sample_id not in bad.sample_ids]
        return sound, file.read(sound)


class Reader:
    """Reads features of some samples; what the store lacks, or holds damaged, is computed again, which is reported.

    Raises:
        LookupError: The width needs scales, and the cut has none yet.
    """

    def __init__(self, access: Access, cut: int, bits: int, selections: Sequence[Selection]) -> None:
        self._access, self._cut = access, cut
        self._codec = access.codec(cut, bits)
        self._file: RecordFile | None = None
        with suppress(StoreFull):  # reported when it was filled
            self._file = access.file(cut, bits)
        self._has_room = self._file is not None
        self._places = {
            sample_id: (selection.partition, int(index))
            for selection in selections
            for sample_id, index in zip(selection.ids(), selection.indices, strict=True)
        }
        self._prefix: Prefix | None = None

    def read(self, ids: Sequence[str]) -> Floats:
        """Return float32 [n, *shape]."""
        lost: Sequence[str] = ids
        codes: dict[str, Codes] = {}
        if self._file is not None:
            try:
                return self._codec.decode(self._file.read(ids))
            except BadRecord as bad:
                lost = bad.sample_ids
            whole = sorted(set(ids).difference(lost))
            codes = dict(zip(whole, self._file.read(whole), strict=True))
        codes |= self._derived(lost)
        if rest := [sample_id for sample_id in lost if sample_id not in codes]:
            codes |= self._computed(rest)
        return self._codec.decode(np.stack([codes[sample_id] for sample_id in ids]))

    def _derived(self, ids: Sequence[str]) -> dict[str, Codes]:
        """Return records of 4, 2 or 1 bits made from those 8-bit ones that are there: they may have had no room."""
        if self._codec.bits >= CODED_BITS:
            return {}
        try:
            coded = self._access.file(self._cut, CODED_BITS)
        except StoreFull:
            return {}
        there, records = sound_records(coded, list(dict.fromkeys(ids)))
        return dict(zip(there, self._codec.narrow(records), strict=True))

    def _computed(self, ids: Sequence[str]) -> dict[str, Codes]:
        """Return records computed again.

        As long as there is room they are put back with all of their batch, which runs as in a filling pass: the same
        bytes, and no batch twice. Without room just these run.
        """
        if self._prefix is None:
            text = f"{len(ids)} stored features were missing or damaged and are computed again"
            self._access.report({"warning": text})
            self._prefix = self._access.prefix([self._cut])
        wanted: dict[str, set[int]] = {}
        asked = set(ids)
        for sample_id in asked:
            partition, index = self._places[sample_id]
            wanted.setdefault(partition, set()).add(index)
        samples = dict(self._access.task.partitions())
        computed: dict[str, Codes] = {}
        todo = batches(self._access.task, wanted) if self._has_room else exactly(wanted)
        for batch, outputs in self._prefix.over(todo):
            records = self._codec.encode(outputs[self._cut])
            by_id = dict(zip(map(samples[batch.partition].sample_id, batch.indices), records, strict=True))
            computed |= {sample_id: record for sample_id, record in by_id.items() if sample_id in asked}
            useful = [sample_id for sample_id in by_id if sample_id in self._places]
            if self._file is not None and self._has_room:
                try:
                    self._file.append(useful, np.stack([by_id[sample_id] for sample_id in useful]))
                except StoreFull:
                    self._has_room = False
        return computed


class TrainingReader:
    """Reads features that are trained on: in the plan's width, those of samples that judged a trial as they judged it.

    Raises:
        LookupError: The width needs scales, and the cut has none yet.
    """

    def __init__(self, access: Access, cut: int, bits: int, selections: Sequence[Selection]) -> None:
        judged = [one for one in selections if one.partition == VALIDATION]
        self._coded = Reader(access, cut, bits, [one for one in selections if one.partition != VALIDATION])
        self._exact = Reader(access, cut, VALIDATION_BITS, judged)
        self._judged = {sample_id for one in judged for sample_id in one.ids()}

    def read(self, ids: Sequence[str]) -> Floats:
        """Return float32 [n, *shape]."""
        exact = np.array([sample_id in self._judged for sample_id in ids], bool)
        if exact.all() or not exact.any():
            return (self._exact if exact.all() else self._coded).read(ids)
        parts = [(rows, [ids[row] for row in np.flatnonzero(rows).tolist()]) for rows in (exact, ~exact)]
        judged, coded = (reader.read(own) for reader, (_, own) in zip((self._exact, self._coded), parts, strict=True))
        values: Floats = np.empty((len(ids), *judged.shape[1:]), np.float32)
        values[exact], values[~exact] = judged, coded
        return values
