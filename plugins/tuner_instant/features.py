"""What a network computes of samples at several cuts: gathered once, kept by a run, and what heads are solved from."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Array, Floats, Labels
from tuner.bundle.info import BundleInfo
from tuner.bundle.tensors import open_tensors, read_tensors
from tuner.errors import RunError, TunerError
from tuner.files import write_private
from tuner.ridge.sums import blocks, coded, step_of
from tuner_instant.cuts import Cut

#: File of a run, and its format.
FILE, FORMAT, ABOUT = "samples.safetensors", 1, "about"


class Codes:
    """Features of samples as codes of 16 bits, filled one by one: no more of them is in memory.

    Where one is larger than all before, the step grows, and what was coded is coded again.

    Attributes:
        codes: int16 [n, features].
        step: What one is worth; see `tuner.ridge.sums.step_of`.
    """

    def __init__(self, count: int, features: int) -> None:
        self.codes, self.step = np.zeros((count, features), np.int16), 0.0

    def put(self, row: int, features: Floats) -> None:
        """Keep the features of a sample, float32 [features]; rows come in order.

        Raises:
            TrainingError: They are not finite.
        """
        step = step_of(features)
        if step > self.step and features.any():
            for here in blocks(row):
                self.codes[here] = np.rint(self.codes[here] * (self.step / step))
            self.step = step
        self.codes[row] = coded(features[None], self.step or 1.0)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """A network's features of a user's samples, and of known ones.

    Attributes:
        info: What every bundle of them says of itself: labels, and the input.
        model: The ONNX file, and its hash.
        rows: Row in its head of each of the labels that it knows, the first ones.
        cuts: Its cuts; the last are the features that its own head reads.
        widths: Bits of the weights of the networks that computed them.
        parts: Rows of each partition.
        labels: int64 [n], or float32 [n, outputs] of ones and zeros with several labels a sample.
        codes: Features by each network in turn at each cut, int16 [n, features], and what one code is worth.
    """

    info: BundleInfo
    model: Path
    digest: str
    rows: tuple[int, ...]
    cuts: tuple[Cut, ...]
    widths: tuple[int, ...]
    parts: Mapping[str, tuple[int, int]]
    labels: Labels
    codes: tuple[Array, ...]
    steps: tuple[float, ...]

    def place(self, cut: int, bits: int) -> int:
        """Return which of the codes are those at a cut by a network of so many bits; a ValueError without it."""
        return self.widths.index(bits) * len(self.cuts) + cut

    def save(self, folder: Path) -> None:
        """Write `FILE` into a run's folder, readable by the user only."""
        about = {
            "format": FORMAT,
            "info": self.info.to_dict(),
            "model": str(self.model),
            "digest": self.digest,
            "rows": self.rows,
            "cuts": [asdict(cut) for cut in self.cuts],
            "widths": self.widths,
            "parts": self.parts,
            "steps": self.steps,
        }
        tensors = {"labels": self.labels, **{f"codes.{at}": codes for at, codes in enumerate(self.codes)}}
        write_private(folder / FILE, save(tensors, {ABOUT: json.dumps(about)}))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `FILE` of a run's folder.

        Raises:
            RunError: It is not there, or its parts do not fit together; or the model is another one now.
        """
        path = folder / FILE
        if not path.exists():
            raise RunError(f"{folder} has no {FILE} to export from, such as after tuner forget: run again")
        try:
            with open_tensors(path) as file:
                about = json.loads((file.metadata() or {})[ABOUT])
            if about["format"] != FORMAT:
                raise RunError(f"{path} has format {about['format']!r:.40}, this version reads {FORMAT}: update tuner")
            tensors = read_tensors(path)
            cuts, widths = tuple(_cut(one) for one in about["cuts"]), tuple(map(int, about["widths"]))
            found = cls(
                BundleInfo.from_dict(about["info"]),
                Path(about["model"]),
                str(about["digest"]),
                tuple(map(int, about["rows"])),
                cuts,
                widths,
                {str(name): (int(begin), int(end)) for name, (begin, end) in about["parts"].items()},
                tensors["labels"],
                tuple(tensors[f"codes.{at}"] for at in range(len(widths) * len(cuts))),
                tuple(map(float, about["steps"])),
            )
            for problem in found._problems():
                raise RunError(f"{path}: {problem}: run it again")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(f"{path} cannot be read ({error}): run it again") from None
        except TunerError as error:
            raise error if isinstance(error, RunError) else RunError(f"{path} cannot be read: run it again") from None
        if digest_of(found.model) != found.digest:
            raise RunError(f"{found.model}, the model of {folder}, is not there, or changed: put it back, or run again")
        return found

    def _problems(self) -> Iterator[str]:
        count, outputs = len(self.labels), len(self.info.labels)
        if not self.steps or len(self.steps) != len(self.codes) or len(self.rows) > outputs:
            yield "its cuts do not fit together"
        if not count or not self.info.targets.fits(self.labels, outputs):
            yield "a label is none of the classes"
        for cut, codes, step in zip(self.cuts * len(self.widths), self.codes, self.steps, strict=False):
            if codes.dtype != np.int16 or codes.shape != (count, cut.features) or not 2.0**-100 < step < 2.0**100:
                yield "its features are not those of the cuts"
        if any(not 0 <= begin <= end <= count for begin, end in self.parts.values()):
            yield "a partition is outside of its samples"


def digest_of(model: Path) -> str:
    """Return the hash of a file; empty where it cannot be read."""
    try:
        with model.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _cut(values: Mapping[str, object]) -> Cut:
    """Return a cut as JSON holds it; errors of wrong types are `TypeError` or `ValueError`."""
    read = dict(values)
    for name in ("shape", "order"):
        read[name] = tuple(map(int, read[name]))  # type: ignore[call-overload]
    return Cut(**read)  # type: ignore[arg-type]
