"""Stored features of global samples with their labels, in one file, which a bundle brings along against forgetting."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tuner.bundle.tensors import open_tensors, read_tensors
from tuner.errors import BundleError
from tuner.files import private_file
from tuner.store.codec import Codec

FORMAT = "1"


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Stored features of samples, and the samples' labels.

    Attributes:
        codec: How features become codes.
        codes: Codes of the features, uint8 [n, `codec.record_bytes`].
        labels: int64 [n], or float32 [n, outputs] with several labels a sample, or with targets.
    """

    codec: Codec
    codes: npt.NDArray[np.uint8]
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def read(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return features, float32 [n, *shape]."""
        return self.codec.decode(self.codes[rows])

    def extended(self, codes: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> "Replay":
        """Return these samples, followed by others of the same codec and kind of labels."""
        return Replay(self.codec, np.concatenate([self.codes, codes]), np.concatenate([self.labels, labels]))

    def select(self, rows: npt.NDArray[np.int64]) -> "Replay":
        """Return some of these samples."""
        return Replay(self.codec, self.codes[rows], self.labels[rows])

    def save(self, path: Path) -> None:
        """Write the samples as safetensors."""
        tensors: dict[str, npt.NDArray[Any]] = {"codes": self.codes, "labels": self.labels}
        if self.codec.low is not None and self.codec.high is not None:
            tensors |= {"low": self.codec.low, "high": self.codec.high}
        metadata = {
            "format": FORMAT,
            "bits": str(self.codec.bits),
            "shape": " ".join(map(str, self.codec.shape)),
            "per_sample": json.dumps(self.codec.per_sample),
        }
        with private_file(path) as part:
            save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, part, metadata)

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
        codes, labels = tensors.get("codes"), tensors.get("labels")
        if codes is None or labels is None:
            raise BundleError(f"{path} lacks codes or labels: export again")
        codec = Codec(bits, shape, tensors.get("low"), tensors.get("high"), per_sample)
        if codes.dtype != np.uint8 or codes.shape != (len(labels), codec.record_bytes):
            raise BundleError(
                f"{path} must have codes uint8 [{len(labels)}, {codec.record_bytes}], one for each label, "
                f"has {codes.dtype} {list(codes.shape)}: export again"
            )
        return cls(codec, codes, labels)
