"""A bundle as a device reads it: a folder with a format version and a hash of every part."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import BundleError, TunerError
from tuner.runtime.home import current
from tuner.task import InputSpec

FORMAT = 1
FILE = "bundle.json"
MODEL, WEIGHTS, PLAN = "model.onnx", "weights.safetensors", "plan.toml"


@dataclass(frozen=True, slots=True)
class Exits:
    """How a chain of segments is left early; PersEPhonEE (HotMobile 2021), section 3.

    Attributes:
        segments: File of each, in order; segment i ends with exit i, the last with the model's own output.
        shares: Of the whole model's FLOPs, spent on leaving at each exit.
        thresholds: Of every exit but the last: a sample leaves at the first exit whose confidence is above it.
        temperature: That logits are divided by.
        tolerance: Drop of accuracy that the thresholds were chosen for: 0.01 is a point.
    """

    segments: tuple[str, ...]
    shares: tuple[float, ...]
    thresholds: tuple[float, ...]
    temperature: float
    tolerance: float

    def __post_init__(self) -> None:
        if len(self.thresholds) != len(self.segments) - 1 or len(self.shares) != len(self.segments):
            raise BundleError(
                f"exits want a share for each segment and a threshold for each but the last, but there are "
                f"{len(self.segments)} segments, {len(self.shares)} shares, {len(self.thresholds)} thresholds"
            )
        if self.temperature <= 0:
            raise BundleError(f"exits.temperature is above 0, but it is {self.temperature:g}")


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
        exits: None where the model is one file.
    """

    folder: Path
    name: str
    labels: tuple[str, ...]
    input: InputSpec
    input_shape: tuple[int, ...]
    loss: str
    info: Mapping[str, Any]
    exits: Exits | None = None

    @property
    def models(self) -> tuple[Path, ...]:
        """The ONNX files, in the order they run in: one for each exit."""
        return tuple(self.folder / name for name in (self.exits.segments if self.exits else (MODEL,)))

    @property
    def identity(self) -> str:
        """Hash of ``bundle.json``, which holds every part's hash: what a child names as its parent."""
        return file_hash(self.folder / FILE)

    @classmethod
    def open(cls, folder: str | Path) -> "Bundle":
        """Read a bundle and check every part; of a bundle that has trained on the device, the round in use.

        Raises:
            BundleError: It is none, comes from a newer version, or a part is not what it was.
        """
        return cls.read(current(Path(folder)))

    @classmethod
    def read(cls, folder: Path) -> "Bundle":
        """Read the bundle in this very folder, whatever round is in use, and check every part.

        Raises:
            BundleError: As `open`.
        """
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
            return cls(folder, content["name"], labels, spec, shape, content["loss"], content, _exits(content))
        except (KeyError, TypeError) as error:
            raise BundleError(f"{folder / FILE} lacks {error}: export again") from None
        except BundleError:
            raise
        except TunerError as error:
            raise BundleError(f"{folder / FILE}: {error}") from None


@contextmanager
def placed(out: Path) -> Iterator[Path]:
    """Give a folder to write a bundle into, and put it in place whole; nothing is left of one that was not finished.

    Raises:
        BundleError: `out` is something already, or cannot be made; known before anything is trained for it.
    """
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if (out.exists() or out.is_symlink()) and (not out.is_dir() or any(out.iterdir())):
            what = "is not empty" if out.is_dir() else "is not a folder"
            raise BundleError(f"{out} {what}: give another folder")
        part.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise BundleError(f"{out} cannot be made ({error.strerror or error}): give another folder") from None
    try:
        yield part
        if out.exists():
            out.rmdir()
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    Bundle.open(out)


@contextmanager
def successor(
    parent: Bundle,
    out: Path,
    replaced: Mapping[str, Callable[[], bytes | bytearray]],
    scores: Mapping[str, Any],
    **said: Any,
) -> Iterator[Path]:
    """Give a folder with a bundle's files, some of them replaced, to check; it is then sealed and put in place.

    Args:
        parent: The bundle that the new one names.
        out: As for `placed`.
        replaced: Give new contents, by file; asked one after the other, so that one at a time is in memory.
        scores: ``before`` and ``after`` training.
        said: What else ``bundle.json`` says anew.

    Raises:
        BundleError: As `placed`.
    """
    from importlib.metadata import version  # brings much that who only predicts has no use for

    content = {
        **parent.info,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "tuner": version("tuner"),
        "parent": parent.identity,
        "scores": {"untouched": parent.info["scores"].get("untouched", {}), **scores},
        **said,
    }
    with placed(out) as part:
        for name in parent.info["files"]:
            (part / name).parent.mkdir(mode=0o700, exist_ok=True)
            if name in replaced:
                (part / name).write_bytes(replaced[name]())
            else:
                shutil.copyfile(parent.folder / name, part / name)
        yield part
        seal(part, content)


def seal(part: Path, content: Mapping[str, Any]) -> None:
    """Write ``bundle.json`` with the hash of every file in a folder, and make all of it the user's own."""
    files = sorted(path for path in part.rglob("*") if path.is_file())
    hashes = {path.relative_to(part).as_posix(): file_hash(path) for path in files}
    (part / FILE).write_text(json.dumps({**content, "files": hashes}, indent=1), encoding="utf-8")
    for path in part.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def _exits(content: Mapping[str, Any]) -> Exits | None:
    said = content.get("exits")
    if said is None:
        return None
    unhashed = sorted(set(said["segments"]) - set(content["files"]))
    if unhashed:
        raise BundleError(f"no hash of {unhashed[0]}: export again")
    numbers = {name: tuple(map(float, said[name])) for name in ("shares", "thresholds")}
    return Exits(
        tuple(said["segments"]), numbers["shares"], numbers["thresholds"], said["temperature"], said["tolerance"]
    )


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
