"""What a bundle keeps of a head in closed form: the given head, and the user's samples as codes of their features."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Doubles, Labels
from tuner.bundle.format import Bundle
from tuner.bundle.tensors import open_tensors, read_tensors
from tuner.errors import BundleError, TrainingError
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import LARGEST_CODE, MOST_FEATURES
from tuner.ridge.union import UnionSettings
from tuner.runtime.train.files import SOLVED

FORMAT = 1
#: Key of the file's metadata. There is one: safetensors writes several in no fixed order.
ABOUT = "about"


@dataclass(frozen=True, slots=True, eq=False)
class SolvedFile:
    """Content of ``train/solved.safetensors``; the sums of the codes are taken when it is read.

    Attributes:
        given: The model's head before it was personalised.
        codes: The user's samples, float64 [n, features]; see `tuner.ridge.sums.coded`.
        labels: int64 [n], or uint8 [n, outputs] of ones and zeros with several labels a sample.
        step: What one code is worth.
        settings: How the head is solved.
    """

    given: LinearHead
    codes: Doubles
    labels: Labels
    step: float
    settings: UnionSettings

    def content(self) -> bytes:
        """Return the file's content."""
        tensors = {
            "given.weight": self.given.weight.astype(np.float32),
            "given.bias": self.given.bias.astype(np.float32),
            "codes": self.codes.astype(np.int16),
            "labels": self.labels.astype(np.uint8 if self.labels.ndim > 1 else np.int64),
        }
        about = json.dumps({"format": FORMAT, "step": self.step, "settings": asdict(self.settings)})
        contents: bytes = save({name: np.ascontiguousarray(value) for name, value in tensors.items()}, {ABOUT: about})
        return contents

    def save(self, folder: Path) -> None:
        """Write the file into a bundle's folder."""
        (folder / SOLVED).write_bytes(self.content())

    @classmethod
    def load(cls, bundle: Bundle) -> "SolvedFile":
        """Read the file of a bundle.

        Raises:
            BundleError: It cannot be read, or its parts do not fit together or the bundle.
        """
        path, outputs = bundle.file(SOLVED), len(bundle.labels)
        with open_tensors(path) as file:
            metadata = file.metadata() or {}
        tensors = read_tensors(path)
        try:
            about = json.loads(metadata[ABOUT])
            if about["format"] != FORMAT:
                raise BundleError(
                    f"{path} has format {about['format']!r:.40}, this version reads {FORMAT}: update tuner"
                )
            step, settings = float(about["step"]), UnionSettings.of(about["settings"])
            weight, bias, codes, labels = (tensors[name] for name in ("given.weight", "given.bias", "codes", "labels"))
        except (KeyError, TypeError, ValueError, RecursionError, TrainingError) as error:
            raise BundleError(f"{path} cannot be read ({error}): export again") from None
        features = weight.shape[-1] if weight.ndim else 0
        fits = (
            weight.shape == (outputs, features)
            and 0 < features <= MOST_FEATURES
            and bias.shape == (outputs,)
            and codes.shape == (len(labels), features)
            and codes.dtype == np.int16
            and labels.dtype.kind in "ui"
            and bundle.targets.fits(labels.astype(np.float32) if labels.dtype == np.uint8 else labels, outputs)
            and np.abs(codes.astype(np.int32)).max(initial=0) <= LARGEST_CODE
            and 2.0**-100 < step < 2.0**100
            and np.log2(step) % 1 == 0
        )
        if not fits:
            raise BundleError(f"{path} must have a head of {outputs} labels, and codes with labels of it: export again")
        return cls(
            LinearHead(weight.astype(np.float64), bias.astype(np.float64)),
            codes.astype(np.float64),
            labels,
            step,
            settings,
        )
