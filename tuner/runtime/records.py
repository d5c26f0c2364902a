"""Features of samples as codes with labels, in one file: what a bundle brings along against forgetting."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tuner.errors import BundleError
from tuner.store.codec import Codec

FORMAT = "1"


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Stored features.

    Attributes:
        codec: How features become codes.
        codes: uint8 [n, `codec.record_bytes`].
        labels: int64 [n], or float32 [n, outputs] of several labels a sample.
    """

    codec: Codec
    codes: npt.NDArray[np.uint8]
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def read(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return features, float32 [n, *shape]."""
        return self.codec.decode(self.codes[rows])

    def more(self, codes: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> "Records":
        """Return these records and others of the same codec and kind of labels after them."""
        both = np.concatenate([self.codes, codes]), np.concatenate([self.labels, labels])
        return Records(self.codec, *both)

    def only(self, rows: npt.NDArray[np.int64]) -> "Records":
        """Return some of these records."""
        return Records(self.codec, self.codes[rows], self.labels[rows])

    def none(self) -> "Records":
        """Return no records, of the same codec and kind of labels."""
        return Records(self.codec, self.codes[:0], self.labels[:0])

    def save(self, path: Path) -> None:
        """Write the records as safetensors."""
        tensors: dict[str, npt.NDArray[Any]] = {"codes": self.codes, "labels": self.labels}
        if self.codec.low is not None and self.codec.high is not None:
            tensors |= {"low": self.codec.low, "high": self.codec.high}
        about = {"format": FORMAT, "bits": str(self.codec.bits), "shape": " ".join(map(str, self.codec.shape))}
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path, about)

    @classmethod
    def load(cls, path: Path) -> "Records":
        """Read what `save` wrote.

        Raises:
            BundleError: The file is none, or of another version's format.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (OSError, SafetensorError) as error:
            raise BundleError(f"{path} cannot be read ({error}): copy the whole bundle again") from None
        if about.get("format") != FORMAT:
            raise BundleError(
                f"{path} has record format {about.get('format')}, this version reads {FORMAT}: update tuner"
            )
        shape = tuple(map(int, about["shape"].split()))
        codec = Codec(int(about["bits"]), shape, tensors.get("low"), tensors.get("high"))
        return cls(codec, tensors["codes"], tensors["labels"])
