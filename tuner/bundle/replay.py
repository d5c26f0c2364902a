"""Stored features of samples with their labels, in one file, which a bundle brings along against forgetting."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from tuner.arrays import Codes, Labels, RowNumbers
from tuner.bundle.tensors import open_tensors, read_tensors
from tuner.errors import BundleError
from tuner.files import write_private
from tuner.store.codec import Codec
from tuner.targets.strata import members_of

FORMAT = "1"


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Stored features of samples, and the samples' labels.

    Attributes:
        codec: How features become codes.
        codes: Codes of the features, uint8 [n, `codec.record_bytes`].
        labels: int64 [n], or float32 [n, outputs] with several labels a sample, or with targets.
        marks: Numbers from hashes of the samples' contents, by which they are known again, int64 [n]; or none, [0].
    """

    codec: Codec
    codes: npt.NDArray[np.uint8]
    labels: npt.NDArray[Any]
    marks: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.codes)

    def read(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return features, float32 [n, *shape]."""
        return self.codec.decode(self.codes[rows])

    def extended(self, codes: Codes, labels: Labels, marks: RowNumbers | None = None) -> "Replay":
        """Return these samples, followed by others of the same codec and kind of labels; without marks, of both."""
        both = np.concatenate([self.codes, codes]), np.concatenate([self.labels, labels])
        return Replay(self.codec, *both, *(() if marks is None else [np.concatenate([self.marks, marks])]))

    def select(self, rows: npt.NDArray[np.int64]) -> "Replay":
        """Return some of these samples."""
        marks = self.marks[rows] if len(self.marks) else self.marks
        return Replay(self.codec, self.codes[rows], self.labels[rows], marks)

    def content(self) -> bytes:
        """Return the samples as safetensors."""
        tensors: dict[str, npt.NDArray[Any]] = {"codes": self.codes, "labels": self.labels}
        tensors |= {"marks": self.marks} if len(self.marks) else {}
        if self.codec.low is not None and self.codec.high is not None:
            tensors |= {"low": self.codec.low, "high": self.codec.high}
        metadata = {
            "format": FORMAT,
            "bits": str(self.codec.bits),
            "shape": " ".join(map(str, self.codec.shape)),
            "per_sample": json.dumps(self.codec.per_sample),
        }
        content: bytes = save({name: np.ascontiguousarray(value) for name, value in tensors.items()}, metadata)
        return content

    def save(self, path: Path) -> None:
        """Write the samples."""
        write_private(path, self.content())

    @classmethod
    def load(cls, path: Path) -> "Replay":
        """Read what `save` wrote.

        Raises:
            TunerError: The file cannot be read, has another version's format, or its parts do not fit together.
        """
        with open_tensors(path) as file:
            metadata = file.metadata() or {}
            version = metadata.get("format")
            if version != FORMAT:
                raise BundleError(f"{path} has record format {version}, this version reads {FORMAT}: update tuner")
            bits, shape = int(metadata["bits"]), tuple(map(int, metadata["shape"].split()))
            per_sample = metadata["per_sample"] == "true"
        tensors = read_tensors(path)
        codes, labels, marks = tensors.get("codes"), tensors.get("labels"), tensors.get("marks", np.zeros(0, np.int64))
        if codes is None or labels is None:
            raise BundleError(f"{path} lacks codes or labels: export again")
        codec = Codec(bits, shape, tensors.get("low"), tensors.get("high"), per_sample)
        if codes.dtype != np.uint8 or codes.shape != (len(labels), codec.record_bytes):
            raise BundleError(
                f"{path} must have codes uint8 [{len(labels)}, {codec.record_bytes}], one for each label, "
                f"has {codes.dtype} {list(codes.shape)}: export again"
            )
        if marks.dtype != np.int64 or marks.shape not in {(0,), (len(labels),)}:
            raise BundleError(f"{path} must have a mark int64 for each of its {len(labels)} labels: export again")
        return cls(codec, codes, labels, marks)


def every_class_alike(labels: Labels, order: RowNumbers, most: int) -> RowNumbers:
    """Return the sorted places of at most so many samples: as many of each class, or all that it has.

    Those of a class are taken by an order, int64 [n], the smallest first. By hashes of their contents, it makes no
    difference when a sample came.
    """
    ranked = sorted(
        (rank, int(order[row]), int(row))
        for members in members_of(labels)
        for rank, row in enumerate(members[np.argsort(order[members], kind="stable")])
    )
    return np.sort(np.array(list(dict.fromkeys(row for *_, row in ranked))[:most], np.int64))
