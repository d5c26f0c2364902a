"""A bundle as a device reads it: a folder with a format version and a hash of every part."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BundleError, TunerError
from tuner.task import InputSpec

FORMAT = 1
FILE = "bundle.json"
MODEL, WEIGHTS, PLAN = "model.onnx", "weights.safetensors", "plan.toml"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds.

    Attributes:
        folder: Of the bundle.
        name: Of the task.
        labels: Of the outputs, in order.
        input: How a sample becomes the model's input.
        input_shape: Of one sample, without the batch.
        loss: ``single-label`` or ``multi-label``.
        info: Everything else ``bundle.json`` says: scores, parent, the plan in a sentence.
    """

    folder: Path
    name: str
    labels: tuple[str, ...]
    input: InputSpec
    input_shape: tuple[int, ...]
    loss: str
    info: Mapping[str, Any]

    @property
    def model(self) -> Path:
        """The ONNX file."""
        return self.folder / MODEL

    @property
    def identity(self) -> str:
        """Hash of ``bundle.json``, which holds every part's hash: what a child names as its parent."""
        return file_hash(self.folder / FILE)

    @classmethod
    def open(cls, folder: str | Path) -> "Bundle":
        """Read a bundle and check every part.

        Raises:
            BundleError: It is none, comes from a newer version, or a part is not what it was.
        """
        folder = Path(folder)
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BundleError(f"{folder} is not a bundle: it has no {FILE}; `tuner export RUN OUT` makes one") from None
        except (OSError, ValueError) as error:
            raise BundleError(f"{folder / FILE} cannot be read: {error}") from None
        if content.get("format") != FORMAT:
            raise BundleError(
                f"{folder} has bundle format {content.get('format')!r}, this version reads {FORMAT}: update tuner"
            )
        try:
            _check_files(folder, content["files"])
            spec = InputSpec(**{name: _tuple(value) for name, value in content["input"].items()})
            labels, shape = tuple(content["labels"]), tuple(content["input_shape"])
            return cls(folder, content["name"], labels, spec, shape, content["loss"], content)
        except (KeyError, TypeError) as error:
            raise BundleError(f"{folder / FILE} lacks {error}: export again") from None
        except BundleError:
            raise
        except TunerError as error:
            raise BundleError(f"{folder / FILE}: {error}") from None


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, digest in files.items():
        if not (folder / name).is_file():
            raise BundleError(f"{folder} lacks {name}: copy the whole folder")
        if file_hash(folder / name) != digest:
            raise BundleError(f"{folder / name} is not what was exported (its hash differs): export again")


def file_hash(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
