"""A task's stored features: keys, codecs, scales, files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tuner.backends.torch.features.int8 import int8_kind, int8_prefix
from tuner.backends.torch.features.prefix import Prefix
from tuner.backends.torch.model.graph.nodes import Chain
from tuner.backends.torch.model.open.fingerprint import state_hash, structure_hash
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.parts import Precision
from tuner.planner.data_terms import EXACT_BITS
from tuner.store.codec import Codec, has_own_scales
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile
from tuner.store.kept import Scales, chosen_engine, read_scales
from tuner.store.store import Store
from tuner.task import Task
from tuner.training.epochs import Report

VALIDATION_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A task's features in a store, made by a model's prefix.

    Attributes:
        report: Receives progress and warnings.
        unstored: Scales by cut that a full disk left no room for.
    """

    task: Task
    loaded: OpenModel
    store: Store
    threads: int
    report: Report
    precision: Precision = "fp32"
    unstored: dict[int, Scales] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The engine that computes the prefix."""
        if self.precision == "int8":
            return int8_kind(self.task, self.loaded)
        return chosen_engine(self.store.folder, self.loaded.info.fingerprint, self.threads)

    def key(self, cut: int, bits: int, scales: str = "") -> StoreKey:
        """Return what must match for a stored feature to be read as right."""
        if self.loaded.chain is None:
            raise ValueError("a model without cut points has no features to store")
        block = self.loaded.info.blocks[cut]
        return StoreKey(
            prefix=prefix_hash(self.loaded.chain, cut),
            preprocessing=hashlib.blake2b(json.dumps(self.task.input.to_dict()).encode(), digest_size=16).hexdigest(),
            kind=self.kind,
            cut=block.cut,
            bits=bits,
            shape=block.in_shape,
            scales=scales,
            per_sample=has_own_scales(bits, block.in_shape),
        )

    def scales(self, cut: int) -> Scales | None:
        """Return the cut's scales; None where there are none yet."""
        unstored = self.unstored.get(cut)
        return unstored or read_scales(self.store.folder, self.key(cut, EXACT_BITS), self.loaded.task_fingerprint)

    def codec(self, cut: int, bits: int) -> Codec:
        """Return what codes the records of one cut at one width; see `file`."""
        low, high, _ = self._needed_scales(cut, bits)
        shape = self.loaded.info.blocks[cut].in_shape
        return Codec(bits, shape, low, high, has_own_scales(bits, shape))

    def folder(self, cut: int, bits: int) -> Path:
        """Return where the records of one cut at one width lie, or would lie."""
        return self.store.path(self.key(cut, bits, self._needed_scales(cut, bits)[2]))

    def file(self, cut: int, bits: int) -> RecordFile:
        """Open the records of one cut at one width, and keep them from being evicted while this process lives.

        Raises:
            LookupError: The width needs scales, and the cut has none yet.
            StoreFull: There is no room for even an empty file.
        """
        low, high, scales = self._needed_scales(cut, bits)
        key = self.key(cut, bits, scales)
        self.store.in_use.add(self.store.path(key))
        file = self.store.file(key, low, high)
        for notice in file.take_notices():
            self.report({"warning": notice})
        return file

    def prefix(self, cuts: Sequence[int]) -> Prefix:
        """Return the prefix up to some cuts, ascending; it starts from stored 32-bit records where there are any.

        Fewer bits would do too, but then a record would depend on which way it was computed. In int8 it starts from the
        samples.

        Raises:
            UnsupportedError: It cannot be quantised.
            QuantisingStopped: The report asked for it.
        """
        if self.precision == "int8":
            int8_prefix(self.task, self.loaded, self.report)
            return Prefix(self.task, self.loaded, cuts, self.kind, self.threads)
        above = range(min(cuts) - 1, 0, -1)
        stored = next((cut for cut in above if self.store.path(self.key(cut, EXACT_BITS)).exists()), None)
        shallower = (stored, self.file(stored, EXACT_BITS)) if stored is not None else None
        return Prefix(self.task, self.loaded, cuts, self.kind, self.threads, shallower)

    def _needed_scales(self, cut: int, bits: int) -> Scales | tuple[None, None, str]:
        if bits >= VALIDATION_BITS:
            return None, None, ""
        scales = self.scales(cut)
        if scales is None:
            raise LookupError(f"cut {cut} has no scales yet")
        return scales


@lru_cache(maxsize=128)
def prefix_hash(chain: Chain, cut: int) -> str:
    """Hash the weights, as they are before any trial, and the structure of the blocks before a cut."""
    prefix = chain.prefix(cut)
    return f"{state_hash(prefix)}-{structure_hash(prefix)}"
