"""A bundle as a device reads it: a folder with a format version and a hash of every part."""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.arrays import Labels
from tuner.bundle.exit_policy import ExitPolicy
from tuner.bundle.info import FORMAT, UNKNOWN_FORMAT, BundleInfo, UnknownInfo
from tuner.bundle.onnx_check import check_model
from tuner.bundle.rounds import current
from tuner.bundle.scores import DeviceScores, Scores
from tuner.distribution import installed_version
from tuner.errors import BundleError, TunerError, first_line
from tuner.printable import html_table
from tuner.reading import open_regular, read_bytes
from tuner.targets import Targets
from tuner.targets.base import Label
from tuner.task import InputSpec
from tuner.task.inputs import input_kind, plugin_of_kind
from tuner.task.inputs.base import InputKind
from tuner.untrusted import MOST_BYTES as MOST_JSON_BYTES
from tuner.untrusted import inside, read_json, reason_of

if TYPE_CHECKING:
    from tuner.plan.trial import TrialPlan

FILE = "bundle.json"
#: Folder of a conformance set; no part of the bundle, but served with it.
CONFORMANCE = "conformance"
#: Values that are shares; a plugin's own values may be anything.
ACCURACIES = ("local_accuracy", "global_accuracy", "test_accuracy", "local_loo_accuracy")
MODEL, WEIGHTS, PLAN = "model.onnx", "weights.safetensors", "plan.toml"
#: The model from a decoded file to samples, of kinds where that is more than cutting (`InputKind.graph`).
INPUT = "input.onnx"
#: Nodes that are appended to the model where the distance to the user's samples is asked for.
UNKNOWN = "unknown.onnx"
#: Largest file, as of ONNX; and largest sum of all, which are hashed whenever a bundle is opened.
MOST_FILE_BYTES, MOST_BYTES = 2**31, 2**33
_PIECE_BYTES = 2**18
#: Labels that a notebook shows of a bundle.
MOST_SHOWN = 20


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """An exported model.

    Attributes:
        folder: Folder of the bundle.
        info: Content of ``bundle.json``.
    """

    folder: Path
    info: BundleInfo

    def __repr__(self) -> str:
        """Return one line: the folder, the task, what it takes and the labels."""
        shape = " × ".join(map(str, self.input_shape))
        return f"<Bundle {str(self.folder)!r} of {self.name}: {self.input.kind} [{shape}] → {len(self.labels)} labels>"

    def _repr_html_(self) -> str:
        scores = {name: f"{value:.4g}" for name, value in self.info.scores.from_pixels.items()}
        labels = ", ".join((*self.labels[:MOST_SHOWN], *(["…"] if len(self.labels) > MOST_SHOWN else [])))
        rows = {"input": f"{self.input.kind} {[*self.input_shape]}", "labels": labels, "plan": self.info.sentence}
        return html_table(f"bundle {self.folder} of {self.name}", rows | scores)

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.info.name

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the outputs, in order."""
        return self.info.labels

    @property
    def input(self) -> InputSpec:
        """How a sample becomes the model's input."""
        return self.info.input

    @property
    def kind(self) -> InputKind:
        """Kind of the samples."""
        return input_kind(self.input.kind)

    @property
    def spec(self) -> InputSpec:
        """The input as `InputKind.read` takes it: where samples are windows, with their length."""
        return replace(self.input, window=self.input_shape[-1]) if self.kind.windowed else self.input

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample, without the batch."""
        return self.info.input_shape

    @property
    def targets(self) -> Targets:
        """What a sample's label is."""
        return self.info.targets

    @property
    def exits(self) -> ExitPolicy | None:
        """Exits of a chain of segments; None where the model is one file."""
        return self.info.exits

    def distance(self) -> tuple[bytes, float]:
        """Return what gives the distance to the user's samples (`UNKNOWN`), and the largest that is accepted.

        Raises:
            BundleError: The bundle cannot tell which samples are none of the user's classes.
        """
        info = self.info.unknown
        if info is None:
            raise BundleError(
                f"{self.name} cannot tell which samples are unknown: only exports of one label a sample, with labels, "
                "without exits and with one linear layer as head can, until they train on the device; export again"
            )
        if info.format != UNKNOWN_FORMAT:
            raise BundleError(f"{self.name} has format {info.format} of unknown samples: update tuner")
        return read_bytes(self.file(UNKNOWN), MOST_FILE_BYTES), info.threshold

    @property
    def models(self) -> tuple[Path, ...]:
        """The ONNX files, in the order they run in: one for each exit."""
        return tuple(self.folder / name for name in (self.exits.segments if self.exits else (MODEL,)))

    def label_rows(self, labels: Sequence[Label]) -> Labels:
        """Return labels, by the bundle's names or those of its `label_map`, as the loss takes them."""
        return self.targets.rows(labels, self.labels, self.info.labels_of, self.name)

    def file(self, name: str) -> Path:
        """Return the path of a file of the bundle, which was checked when the bundle was opened."""
        if name not in self.info.files:
            raise BundleError(f"{self.folder / FILE} has no hash of {name}: export again")
        return self.folder / name

    def plan(self) -> "TrialPlan":
        """Return the plan that the bundle was made by; a `BundleError` where it has none, or it cannot be read."""
        from tuner.plan.toml import from_toml  # a process that only predicts does without

        path = self.file(PLAN)
        try:
            return from_toml(read_bytes(path, MOST_JSON_BYTES).decode())
        except (OSError, ValueError, RecursionError) as error:
            raise BundleError(f"{path} cannot be read ({first_line(error)}): export again") from None
        except TunerError as error:
            raise BundleError(f"{path}: {error}") from None

    @property
    def identity(self) -> str:
        """Hash of ``bundle.json``, which holds the hash of every part; a bundle trained from this one names it."""
        return file_hash(self.folder / FILE)

    @classmethod
    def open(cls, folder: str | Path) -> "Bundle":
        """Read a bundle and check every part; of a bundle that has trained on the device, the round in use.

        Raises:
            BundleError: It is not a bundle, comes from a newer version, or a part has changed since it was written.
        """
        return cls.read(current(Path(folder)))

    @classmethod
    def read(cls, folder: Path) -> "Bundle":
        """Read the bundle in this very folder, whatever round is in use, and check every part, as `open` does."""
        info = read_info(folder)
        _check_files(folder, info.files)
        return cls(folder, info)


def read_info(folder: Path, name: str = FILE) -> BundleInfo:
    """Return the content of ``bundle.json``, or of what will replace it; a `BundleError` where it cannot be used."""
    try:
        content = read_json(inside(folder, name))
    except FileNotFoundError:
        raise BundleError(f"{folder} is not a bundle: it has no {FILE}; `tuner export RUN OUT` makes one") from None
    except (OSError, ValueError) as error:
        raise BundleError(f"{folder / name} cannot be read: {reason_of(error)}") from None
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(content, dict) or version != FORMAT:
        raise BundleError(f"{folder} has bundle format {version!r:.40}, this version reads {FORMAT}: update tuner")
    try:
        return _checked(BundleInfo.from_dict({**content, "files": content["files"]}))
    except (KeyError, TypeError) as error:
        raise BundleError(f"{folder / name} lacks {error}: export again") from None
    except BundleError:
        raise
    except TunerError as error:
        raise BundleError(f"{folder / name}: {error}") from None


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write a bundle into, and put it in place whole; an unfinished one is removed.

    Raises:
        BundleError: `out` exists already and is not an empty folder, or cannot be made.
    """
    out = out.absolute()  # the folder `.` has a name too
    _remove_unfinished(out)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if (out.exists() or out.is_symlink()) and (not out.is_dir() or any(out.iterdir())):
            reason = "is not empty" if out.is_dir() else "is not a folder"
            raise BundleError(f"{out} {reason}: give another folder")
        part.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise BundleError(f"{out} cannot be made ({error.strerror or error}): give another folder") from None
    try:
        yield part
        try:
            if out.exists():
                out.rmdir()
            part.rename(out)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            raise BundleError(f"{out} was made by another process meanwhile ({error.strerror}): give another") from None
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError) and str(error.filename).startswith(str(part)):
            error.filename = str(out)  # the folder that the user named
        raise
    Bundle.open(out)


def _remove_unfinished(out: Path) -> None:
    """Remove what killed processes have begun of a bundle: it holds weights, and features of samples."""
    import psutil

    for part in out.parent.glob(f".{escape(out.name)}.*.part"):
        process = part.name.removeprefix(f".{out.name}.").removesuffix(".part")
        if process.isdecimal() and int(process) != os.getpid() and not psutil.pid_exists(int(process)):
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def successor(
    parent: Bundle,
    out: Path,
    replaced: Mapping[str, Callable[[], bytes | bytearray]],
    scores: DeviceScores | None,
    exits: ExitPolicy | None = None,
    unknown: UnknownInfo | None = None,
    **changes: Any,
) -> Iterator[Path]:
    """Give a folder with a bundle's files, some of them replaced, to check; it is then sealed and put in place.

    Args:
        parent: The bundle that training started from.
        out: As for `new_folder`, whose errors are raised.
        replaced: Functions that return new contents, by file; called in turn, so that one content is in memory.
        scores: Values before and after training; None where nothing was trained, and the parent's hold.
        exits: New exits; the parent's where they are not given.
        unknown: From where on a sample is none of the user's classes, where `UNKNOWN` is replaced; else it is left out:
            what it was measured on is no longer what the head reads.
        **changes: Other fields of ``bundle.json`` that differ from the parent's.
    """
    info = replace(
        parent.info,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tuner=installed_version(),
        parent=parent.identity,
        scores=Scores(untouched=parent.info.scores.untouched, device=scores) if scores else parent.info.scores,
        exits=exits or parent.exits,
        unknown=unknown,
        **changes,
    )
    with new_folder(out) as part:
        for name in parent.info.files:
            if name == UNKNOWN and unknown is None:
                continue
            (part / name).parent.mkdir(mode=0o700, exist_ok=True)
            if name in replaced:
                (part / name).write_bytes(replaced[name]())
            else:
                shutil.copyfile(parent.folder / name, part / name)
        yield part
        seal(part, info.to_dict())


def write_input(part: Path, spec: InputSpec) -> None:
    """Write the model of a kind from a decoded file to samples, if it has one (`InputKind.graph`)."""
    if (graph := input_kind(spec.kind).graph(spec)) is not None:
        (part / INPUT).write_bytes(graph)


def seal(part: Path, content: Mapping[str, Any]) -> BundleInfo:
    """Write ``bundle.json`` with the hash of every file in a folder, make all of it the user's own, and return it."""
    from tuner.files import write_private  # a process that only predicts does without

    files = sorted(path for path in part.rglob("*") if path.is_file())
    hashes = {path.relative_to(part).as_posix(): file_hash(path) for path in files}
    needs = plugin_of_kind(content["input"]["kind"])
    whole = {**content, **({"needs": needs} if needs else {}), "files": hashes}
    write_private(part / FILE, json.dumps(whole, indent=1))
    for path in part.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return BundleInfo.from_dict(json.loads(json.dumps(whole)))


def file_hash(path: Path) -> str:
    """Return a file's SHA-256."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Check that every file is in the folder, is what was exported, and holds what a bundle's files may hold."""
    left = MOST_BYTES
    for name, digest in files.items():
        try:
            path = inside(folder, name)
            size = path.stat().st_size
            left -= size
            if size > MOST_FILE_BYTES or left < 0:
                raise BundleError(f"{path} has {size:,} bytes: no bundle is as large")
            if file_hash(path) != digest:
                raise BundleError(f"{path} is not what was exported (its hash differs): export again")
            if path.suffix == ".onnx":
                check_model(path)
        except (FileNotFoundError, NotADirectoryError):
            raise BundleError(f"{folder} lacks {name}: copy the whole folder") from None
        except OSError as error:
            raise BundleError(
                f"{folder}: its file {name!r} cannot be used ({reason_of(error)}): export again"
            ) from None


def _checked(info: BundleInfo) -> BundleInfo:
    needed = (*(info.exits.segments if info.exits else (MODEL,)), *((UNKNOWN,) if info.unknown else ()))
    unhashed = sorted(set(needed) - set(info.files))
    if unhashed:
        raise BundleError(f"{FILE} has no hash of {unhashed[0]}: export again")
    if info.label_thresholds and len(info.label_thresholds) != len(info.labels):
        raise BundleError(
            f"{FILE} has {len(info.label_thresholds)} label_thresholds for {len(info.labels)} labels: export again"
        )
    stray = next((label for labels in info.label_map.values() for label in labels if label not in info.labels), None)
    if stray is not None:
        raise BundleError(f"{FILE}: label_map has {stray!r}, which is none of its labels: export again")
    if not info.targets.has_scale(len(info.labels)):
        raise BundleError(
            f"{FILE}: a regression, and nothing else, must have targets with a mean and a deviation for each of its "
            f"{len(info.labels)} outputs: export again"
        )
    scores = chain(info.scores.trial.items(), info.scores.untouched.items(), info.scores.from_pixels.items())
    beyond = next((one for one in scores if one[0] in ACCURACIES and not 0 <= one[1] <= 1), None)
    if beyond is not None:
        raise BundleError(f"{FILE}: {beyond[0]} is {beyond[1]:g}, not between 0 and 1: export again")
    return info
