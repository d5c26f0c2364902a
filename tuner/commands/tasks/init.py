"""Write the task file of a folder of photos, after looking at them."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tuner.errors import TaskError, TunerError, nearest
from tuner.files import write_private
from tuner.plugin.core import build_host
from tuner.processors import usable_processors
from tuner.reading import expanded, kind_of, parse_toml, read_toml
from tuner.results.views.plausible import suspicion
from tuner.search.processes.remote import open_remote
from tuner.store.store import open_store
from tuner.task.data.layout import PhotoFolders, find_photos
from tuner.task.file.draft import Draft
from tuner.task.file.sections import path_of
from tuner.task.file.toml import task_from_values
from tuner.task.file.variables import DATA_VARIABLE, default_data
from tuner.task.survey import Survey, survey

TASK = "task.toml"
MODEL = "mobilenet_v2"
LIBRARY = "torchvision.models"
FETCHED = "IMAGENET1K_V1"
CLASSES = ("classes.tsv", "classes.csv")
WEIGHT_FILES = (".pth", ".pt", ".safetensors")
#: Global photos that the untouched model is scored on, and what that may take.
SCORED, SCORING_SECONDS = 240, 90.0
#: A function of torchvision that builds a classifier.
BUILDER = re.compile(r"^def ([a-z]\w*)\(\s*\*,\s*weights", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task file that was written, and what was found.

    Attributes:
        val: Folder of those to validate with; None where a fifth of each class is held out.
        weights: Weights of the model; None where the function that builds it brings its own.
        global_classes: Number of classes of the global photos; None without such photos.
        classes_file: File with their rows in the model's head; None without one.
        cautions: Lines on what is believed of the rows, and on what the untouched model scores on the global photos.
    """

    task: Path
    name: str
    train: Path
    val: Path | None
    model: str
    weights: str | None
    global_classes: int | None
    classes_file: Path | None
    survey: Survey
    cautions: tuple[str, ...] = ()


def init(
    photos: Path,
    *,
    model: str = MODEL,
    weights: str | None = None,
    global_: Path | None = None,
    out: Path = Path(TASK),
    force: bool = False,
) -> Prepared:
    """Look at a folder of photos and write a task file for them; the arguments are the options of `tuner init`.

    Raises:
        TaskError: The photos, the model or its weights cannot be used, or the file exists.
    """
    if kind_of(out) != "nothing" and not force:
        raise TaskError(f"{out} exists already: give another file with --out, or replace it with --force")
    if kind_of(out.absolute().parent) != "folder":
        raise TaskError(f"{out}: no such folder {out.parent}: make it, or give another file with --out")
    file = out.absolute()
    local = find_photos(photos)
    factory, found = _model(model, weights, local.train)
    others = None if global_ is None else find_photos(global_)
    classes = None if global_ is None or others is None else _classes_file(global_, others)
    draft = Draft(local.name, factory, found, local, others, classes)
    task = task_from_values(parse_toml(draft.text(file)), file)
    seen = survey(task)
    write_private(file, draft.text(file, seen))
    rows = None if others is None else len(task.head_rows)
    cautions = [*task.cautions, *(untouched_lines(file) if rows else ())]
    return Prepared(out, task.name, local.train, local.val, factory, found, rows, classes, seen, tuple(cautions))


def untouched_lines(file: Path) -> Iterator[str]:
    """Yield what the untouched model scores on some of the global photos, and a warning where it does not know them."""
    try:
        limit = time.monotonic() + SCORING_SECONDS
        with open_remote(build_host(end=limit), str(file), ["torch"], kill_at=limit) as sessions:
            session = sessions["torch"]
            outline = session.task
            share = min(1.0, SCORED / max(1, outline.info.global_val))
            found = session.untouched(open_store(None), usable_processors(), share=share)
    except TunerError as error:
        yield f"warning: the untouched model could not be scored on the global photos: {error}"
        return
    counts, targets = found.classes.get("global"), outline.targets
    samples = sum(total for _, _, total in counts.rows) if counts else 0
    score = targets.text(found.values["global_accuracy"], samples)
    yield f"untouched model: {score} of {samples:,} global photos right"
    if warning := suspicion(found.values, counts, outline.labels, targets):
        yield warning


def task_of_photos(photos: Path, run: Path | None, listener: Callable[[Prepared], None]) -> Path:
    """Return the task file of a folder of photos, next to the run's folder; it is written where there is none yet.

    Raises:
        TaskError: As `init`, or the file exists and is the task of other photos.
    """
    try:
        local = find_photos(photos)
    except TaskError as error:
        raise TaskError(f"no task.toml in {photos}; {error}") from None
    folder = run or Path("runs", local.name)
    file = folder.with_name(f"{folder.name}.toml")
    if kind_of(file) == "nothing":
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TaskError(f"{file.parent}: cannot be made ({error.strerror}): give another folder by --out") from None
        listener(init(photos, out=file))
    elif path_of(_train_of(file), file.absolute().parent) != local.train.absolute():
        raise TaskError(f"{file} exists, and is not the task of {photos}: give another folder by --out")
    return file


def _train_of(file: Path) -> str:
    local = read_toml(file, TaskError, "remove it").get("local")
    return str(local.get("train")) if isinstance(local, dict) else ""


def _classes_file(folder: Path, photos: PhotoFolders) -> Path | None:
    """Return the file next to photos that gives their classes' rows in the model's head."""
    places = [place / name for place in (folder, photos.train.parent) for name in CLASSES]
    return next((place for place in places if kind_of(place) == "file"), None)


def _model(model: str, weights: str | None, photos: Path) -> tuple[str, str | None]:
    """Return the factory and the weights as a task file names them."""
    source, colon, function = model.rpartition(":")
    if colon:
        path = Path(source).absolute()
        factory = f"{path}:{function}" if source.endswith(".py") else model
        return factory, _weights_file(weights) if weights else None
    names = _library_models()
    if names and model not in names:
        raise TaskError(
            f"--model: torchvision has no {model!r}{nearest(model, names)}: give one that it has, or a function of "
            "yours, such as net.py:build"
        )
    return f"{LIBRARY}:{model}", _weights_file(weights) if weights else _weights_here(model, photos)


def _weights_file(weights: str) -> str:
    """Return a weights file's absolute path; a name of torchvision's stays."""
    if kind_of(weights) == "file":
        return str(Path(weights).absolute())
    if "/" in weights or weights.lower().endswith(WEIGHT_FILES):
        raise TaskError(f"--weights {weights}: no such file: give the file of the model's state_dict")
    return weights


def _weights_here(model: str, photos: Path) -> str:
    """Return weights of a model of torchvision that are on this device."""
    for folder, pattern in _weight_folders(model, photos):
        files: Iterable[Path] = sorted(folder.glob(pattern)) if kind_of(folder) == "folder" else ()
        for file in files:
            if file.suffix in WEIGHT_FILES and kind_of(file) == "file":
                return str(file.absolute())
    raise TaskError(
        f"no weights of {model} are on this device: give --weights FILE (its state_dict), or --weights {FETCHED}, "
        "which torchvision fetches once, when the run begins"
    )


def _weight_folders(model: str, photos: Path) -> Iterable[tuple[Path, str]]:
    """Yield where weights may be, and the pattern of their names."""
    data = os.environ.get(DATA_VARIABLE) or default_data(Path.cwd()) or default_data(photos.absolute())
    if data is not None:
        yield Path(data, "models"), f"{model}[_.]*"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"))
    home = Path(os.environ.get("TORCH_HOME") or cache / "torch")
    yield home / "hub" / "checkpoints", f"{model}-*"


def _library_models() -> set[str]:
    """Return the names of torchvision's classifiers, read from its source: importing it takes seconds."""
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    sources = (path for folder in folders or () for path in Path(folder, "models").glob("*.py"))
    return {name for path in sources for name in BUILDER.findall(path.read_text(encoding="utf-8"))}
