"""Reading features batch by batch; what is not there is computed again."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from tuner.backends.torch.features import Access
from tuner.backends.torch.picks import Pick
from tuner.backends.torch.prefix import Floats, Prefix, batches, exactly, splits_of
from tuner.planner.cost import CODED_BITS
from tuner.store.codec import requantise
from tuner.store.records import BadRecord, RecordFile, StoreFull


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
        self._codec = access.codec(split, bits)
        self._file: RecordFile | None = None
        with suppress(StoreFull):  # told when it was filled
            self._file = access.file(split, bits)
        self._has_room = self._file is not None
        self._where = {
            one: (pick.split, int(i)) for pick in picks for one, i in zip(pick.ids(), pick.indices, strict=True)
        }
        self._prefix: Prefix | None = None
        self._told = False

    def read(self, ids: Sequence[str]) -> Floats:
        """Return float32 [n, *shape]."""
        lost: Sequence[str] = ids
        kept: dict[str, npt.NDArray[np.uint8]] = {}
        if self._file is not None:
            try:
                return self._codec.decode(self._file.read(ids))
            except BadRecord as bad:
                lost = bad.sample_ids
            whole = sorted(set(ids).difference(lost))
            kept = dict(zip(whole, self._file.read(whole), strict=True))
        kept |= self._derived(lost)
        if rest := [one for one in lost if one not in kept]:
            kept |= self._computed(rest)
        return self._codec.decode(np.stack([kept[one] for one in ids]))

    def _derived(self, ids: Sequence[str]) -> dict[str, npt.NDArray[np.uint8]]:
        """Return records of 4, 2 or 1 bits made from those 8-bit ones that are there: they may have had no room."""
        bits = self._codec.bits
        if bits >= CODED_BITS:
            return {}
        try:
            coded = self._access.file(self._split, CODED_BITS)
        except StoreFull:
            return {}
        absent = set(coded.missing(ids))
        there = [one for one in dict.fromkeys(ids) if one not in absent]
        try:
            records = coded.read(there)
        except BadRecord as bad:
            there = [one for one in there if one not in bad.sample_ids]
            records = coded.read(there)
        return dict(zip(there, requantise(records, coded.codec.shape, bits), strict=True))

    def _computed(self, ids: Sequence[str]) -> dict[str, npt.NDArray[np.uint8]]:
        """Return records computed again.

        As long as there is room they are put back with all of their batch, which runs as in a filling pass: the same
        bytes, and no batch twice. Without room just these run.
        """
        if not self._told:
            self._told = True
            text = f"{len(ids)} stored features were missing or damaged and are computed again"
            self._access.report({"warning": text})
        if self._prefix is None:
            self._prefix = self._access.prefix([self._split])
        wanted: dict[str, set[int]] = {}
        asked = set(ids)
        for one in asked:
            split, index = self._where[one]
            wanted.setdefault(split, set()).add(index)
        samples = splits_of(self._access.task)
        found: dict[str, npt.NDArray[np.uint8]] = {}
        todo = batches(self._access.task, wanted) if self._has_room else exactly(wanted)
        for batch, outputs in self._prefix.over(todo):
            records = self._codec.encode(outputs[self._split])
            named = dict(zip(map(samples[batch.split].sample_id, batch.indices), records, strict=True))
            found |= {one: record for one, record in named.items() if one in asked}
            useful = [one for one in named if one in self._where]
            if self._file is not None and self._has_room:
                try:
                    self._file.append(useful, np.stack([named[one] for one in useful]))
                except StoreFull:
                    self._has_room = False
        return found
