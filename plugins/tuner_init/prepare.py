"""Write the task file of a user's data, after looking at them."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tuner.distribution import CANDIDATES, offered
from tuner.errors import TaskError, TunerError, nearest
from tuner.files import write_private
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.ort.session import open_session
from tuner.plugin.core import build_host
from tuner.reading import expanded, kind_of, parse_toml, read_toml
from tuner.results.views.plausible import suspicion
from tuner.search.processes.remote import open_remote
from tuner.store.store import open_store
from tuner.targets import targets_of
from tuner.task.copies import shared_sessions
from tuner.task.data.entry import EntrySource
from tuner.task.data.samples import Samples
from tuner.task.file.schema import ModelSection
from tuner.task.file.sections import model_spec, path_of
from tuner.task.file.toml import task_from_values
from tuner.task.file.variables import DATA_VARIABLE, default_data
from tuner.task.inputs import input_kind
from tuner.task.spec import LIBRARIES, MODEL_FILES, InputSpec, lacks_tag
from tuner_init.draft import Draft
from tuner_init.layout import DataPlaces, find_data
from tuner_init.survey import Survey, survey

TASK = "task.toml"
LIBRARY = "torchvision.models"
FETCHED = "IMAGENET1K_V1"
#: The model for photos where the user names none.
IMAGES = "mobilenet_v2"
CLASSES = ("classes.tsv", "classes.csv")
#: What errors say of samples with several labels: a setting of the task file.
SEVERAL_LABELS = 'loss.kind = "multi-label"'
WEIGHT_FILES = (".pth", ".pt", ".safetensors")
#: Global photos that the untouched model is scored on, and what that may take.
SCORED, SCORING_SECONDS = 240, 90.0
#: What follows the name of a model that sees pictures of a size of its own.
SIZE = re.compile(r"@\d+$")
#: A function of torchvision that builds a classifier.
BUILDER = re.compile(r"^def ([a-z]\w*)\(\s*\*,\s*weights", re.MULTILINE)


#: How a network that knows nothing yet, or has no head, learns from the global data.
PRETRAIN = {"epochs": 10, "learning_rate": 1e-3}
#: Samples that means and deviations are of.
MOST_MEASURED = 10_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task file that was written, and what was found.

    Attributes:
        kind: Kind of the samples.
        noun: Word for them.
        val: Entry of those to validate with; None where a fifth of each class is held out.
        weights: Weights of the model; None where the function that builds it brings its own, or there are none.
        size: Side of what the model sees, in pixels; None for other samples than images.
        global_classes: Number of classes of the global data; None without such data.
        classes_file: File with their rows in the model's head; None without one.
        candidates: Networks on this machine that a run may choose among, as the file proposes them.
        about: Sentence on what the model has learned already, of one that its kind proposes; empty for nothing.
        cautions: Lines on how the data are read, what is believed of the rows, and what the untouched model scores.
    """

    task: Path
    name: str
    kind: str
    noun: str
    train: Path
    val: Path | None
    model: str
    weights: str | None
    size: int | None
    global_classes: int | None
    classes_file: Path | None
    survey: Survey
    cautions: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    about: str = ""


def init(
    data: Path,
    *,
    model: str | None = None,
    weights: str | None = None,
    global_: Path | None = None,
    kind: str | None = None,
    out: Path = Path(TASK),
    force: bool = False,
    dry_run: bool = False,
) -> Prepared:
    """Look at a user's data and write a task file for them; the arguments are the options of `tuner init`.

    Raises:
        TaskError: The data, the model or its weights cannot be used, or the file exists.
    """
    if kind_of(out) != "nothing" and not force and not dry_run:
        raise TaskError(f"{out} exists already: give another file with --out, or replace it with --force")
    if kind_of(out.absolute().parent) != "folder":
        raise TaskError(f"{out}: no such folder {out.parent}: make it, or give another file with --out")
    file = out.absolute()
    local = find_data(data, kind)
    others = None if global_ is None else find_data(global_, local.kind)
    classes = None if global_ is None or others is None else _classes_file(global_, others)
    samples = input_kind(local.kind)
    targets = targets_of("single-label")
    with _about(data, file):
        settings = samples.proposed(EntrySource(local.train, "train", InputSpec(local.kind), targets))
    named = model or (_usual(weights, local.train) if local.kind == "images" else None)
    given = {} if named is None else _model(named, weights, local.train)
    settings |= _own_settings(given, local.kind, file)
    noun = "photos" if local.kind == "images" else samples.noun
    placeholder = given or {"factory": "tuner.models.rows:mlp"}
    draft = Draft(local.name, placeholder, local, settings, (), others, classes, noun)
    with _about(data, file):
        task = task_from_values(parse_toml(draft.text(file)), file)
    network, about = samples.network(task.local.train.load(0).shape, len(task.labels)), ""
    if not given:
        about = network.about
        given = {"factory": network.factory, "arguments": network.arguments}
        found = _weights_file(weights) if weights else _weights_here(network.weights, local.train)
        given |= {"weights": found} if found else {}
        given |= {"pretrain": PRETRAIN} if others is not None else {}
        if local.kind == "arrays":
            settings |= _statistics((task.global_ or task.local).train)
    point = offered(CANDIDATES).get("proposed") if local.kind == "images" else None
    others_here = () if point is None else tuple(point.load()(file))
    draft = replace(draft, model=given, input=settings, ops=network.ops, candidates=others_here, known=about)
    seen, text = survey(task), partial(draft.text, file)
    if not dry_run:
        write_private(file, text(seen))
    rows = None if others is None else len(task.head_rows)
    is_scored = bool(rows) and not dry_run and "pretrain" not in given
    cautions = [
        *local.notes,
        *shared_sessions(task),
        *task.cautions,
        *_to_fetch(given, out),
        *(untouched_lines(file) if is_scored else ()),
    ]
    factory = str(given.get("factory", "an ONNX file"))
    return Prepared(
        out,
        task.name,
        local.kind,
        noun,
        local.train,
        local.val,
        factory,
        given.get("weights"),
        task.input.size if local.kind == "images" else None,
        rows,
        classes,
        seen,
        tuple(cautions),
        others_here,
        about,
    )


@contextmanager
def _about(data: Path, file: Path) -> Iterator[None]:
    """Let errors name the data: the task file is not there yet, and its keys are not what the user has typed."""
    try:
        yield
    except TaskError as error:
        text = str(error)
        if SEVERAL_LABELS in text:
            raise TaskError(
                f"{data}: samples have several labels, and tuner init is for one label a sample; write the task file "
                "by hand (docs/tasks.md)"
            ) from None
        raise TaskError(text.replace(str(file), str(data), 1) if text.startswith(f"{file}:") else text) from None


def _to_fetch(model: Mapping[str, Any], out: Path) -> Iterator[str]:
    """Yield a warning where the model's weights may have to be fetched, with the command that does."""
    factory, weights = str(model.get("factory", "")), str(model.get("weights", ""))
    library, _, name = factory.partition(":")
    task = "" if str(out) == TASK else f" {shlex.quote(str(out))}"
    if library == LIBRARY and weights and kind_of(Path(weights)) != "file":
        if _weights_here(f"{name}[_.-]*", out) is None:
            yield f"warning: the weights {weights} are not on this device: tuner run{task} --time 10m fetches them once"
    elif library in LIBRARIES and not weights and (library == "timm") == ("." in name) and not name.startswith("/"):
        yield f"note: weights of {factory} that are not on this device: tuner run{task} --time 10m --fetch fetches them"


def _statistics(samples: Samples) -> dict[str, list[float]]:
    """Return mean and deviation of each channel, for numbers that are no pixels; a constant is divided by 1."""
    some = np.stack([samples.load(index) for index in range(min(len(samples), MOST_MEASURED))])
    if some.dtype == np.uint8:
        return {}
    axes = (0, *range(2, some.ndim))
    values = some.astype(np.float64)
    mean, std = values.mean(axis=axes), values.std(axis=axes)
    std[std == 0] = 1
    return {"mean": [float(f"{one:.6g}") for one in mean], "std": [float(f"{one:.6g}") for one in std]}


def _own_settings(model: Mapping[str, Any], kind: str, file: Path) -> dict[str, Any]:
    """Return the settings of the input that the model's own configuration says."""
    weights = str(model.get("weights", ""))
    if "factory" not in model and model:
        shape = open_session(Path(weights), 1, error=TaskError).get_inputs()[0].shape
        side = shape[2] if len(shape) > 2 and isinstance(shape[2], int) else None  # noqa: PLR2004 - [n, channels, side]
        key = {"images": "size", "signals": "window", "audio": "window"}.get(kind)
        last = shape[-1] if kind == "audio" else side
        return {key: last} if key is not None and isinstance(last, int) else {}
    spec = model_spec(ModelSection(factory=model["factory"], weights=model.get("weights")), file) if model else None
    if kind != "images" or spec is None or spec.source is None:
        return {}
    found = build_host().backend("torch").input_defaults(spec)
    return {} if found is None else {key: _listed(getattr(found, key)) for key in ("size", "resize", "mean", "std")}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def untouched_lines(file: Path) -> Iterator[str]:
    """Yield what the untouched model scores on some of the global data, and a warning where it does not know them."""
    try:
        limit = CLOCK.now() + SCORING_SECONDS
        with open_remote(build_host(end=limit), str(file), ["torch"], kill_at=limit) as sessions:
            session = sessions["torch"]
            outline = session.task
            share = min(1.0, SCORED / max(1, outline.info.global_val))
            found = session.untouched(open_store(None), usable_processors(), share=share)
    except TunerError as error:
        yield f"warning: the untouched model could not be scored on the global data: {error}"
        return
    counts, targets = found.classes.get("global"), outline.targets
    samples = sum(total for _, _, total in counts.rows) if counts else 0
    score = targets.text(found.values["global_accuracy"], samples)
    yield f"untouched model: {score} of {samples:,} global samples right"
    if warning := suspicion(found.values, counts, outline.labels, targets):
        yield warning


def task_of_data(
    data: Path, run: Path | None, listener: Callable[[Prepared], object], models: Sequence[str] = ()
) -> Path:
    """Return the task file of a user's data, next to the run's folder; it is written where there is none yet.

    It has the first of some models that can be used; a run chooses among these.

    Raises:
        TaskError: As `init`, or the file exists and is the task of other data.
    """
    try:
        local = find_data(data)
    except TaskError as error:
        raise TaskError(f"no task.toml in {data}; {error}") from None
    folder = run or Path("runs", local.name)
    file = folder.with_name(f"{folder.name}.toml")
    if kind_of(file) == "nothing":
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TaskError(f"{file.parent}: cannot be made ({error.strerror}): give another folder by --out") from None
        listener(_with_first(data, file, models))
    elif path_of(_train_of(file), file.absolute().parent) != local.train.absolute():
        raise TaskError(f"{file} exists, and is not the task of {data}: give another folder by --out")
    return file


def _with_first(data: Path, file: Path, models: Sequence[str]) -> Prepared:
    """Write the task file with the first model that can be used; with the default one where none is named."""
    for number, text in enumerate(models, 1):
        name, _, weights = SIZE.sub("", text).partition("=")
        try:
            return init(data, out=file, model=name.removeprefix(f"{LIBRARY}:"), weights=weights or None)
        except TaskError:
            if number == len(models):
                raise
    return init(data, out=file)


def _train_of(file: Path) -> str:
    local = read_toml(file, TaskError, "remove it").get("local")
    return str(local.get("train")) if isinstance(local, dict) else ""


def _classes_file(place: Path, data: DataPlaces) -> Path | None:
    """Return the file next to data that gives their classes' rows in the model's head."""
    places = [folder / name for folder in (place, data.train.parent) for name in CLASSES]
    return next((path for path in places if kind_of(path) == "file"), None)


def _usual(weights: str | None, near: Path) -> str:
    """Return the model for photos where the user names none: one whose weights are here, if there is any."""
    point = offered(CANDIDATES).get("proposed")
    if weights or point is None or _weights_here(f"{IMAGES}[_.-]*", near) is not None:
        return IMAGES
    return SIZE.sub("", next(iter(point.load()(near)), IMAGES))


def _model(model: str, weights: str | None, near: Path) -> dict[str, Any]:
    """Return the keys of a task file for the model that a user names."""
    if model.lower().rpartition(".")[2] in offered(MODEL_FILES):
        if kind_of(Path(model)) != "file":
            raise TaskError(f"--model {model}: no such file: give the path of an ONNX file, or a model's name")
        return {"weights": str(Path(model).absolute())}
    found = {"weights": _weights_file(weights)} if weights else {}
    library, colon, name = model.partition(":")
    if colon and library in LIBRARIES:
        is_folder = library == "hf" and kind_of(Path(name)) == "folder"
        if (point := offered(CANDIDATES).get("weights")) is not None and lacks_tag(model):
            here = None if found else point.load()(model, near)
            found |= {"weights": str(here)} if here is not None else {}
        return {"factory": f"hf:{Path(name).absolute()}" if is_folder else model, **found}
    source, colon, function = model.rpartition(":")
    if colon:
        return {"factory": f"{Path(source).absolute()}:{function}" if source.endswith(".py") else model, **found}
    names = _library_models()
    if names and model not in names:
        raise TaskError(
            f"--model: torchvision has no {model!r}{nearest(model, names)}: give one that it has, an ONNX file, "
            "timm:NAME.TAG, hf:FOLDER, or a function of yours, such as net.py:build"
        )
    here = found.get("weights") or _weights_here(f"{model}[_.-]*", near)
    if here is None:
        raise TaskError(
            f"no weights of {model} are on this device: give --weights FILE (its state_dict), or --weights {FETCHED}, "
            "which torchvision fetches once, when the run begins"
        )
    return {"factory": f"{LIBRARY}:{model}", "weights": here}


def _weights_file(weights: str) -> str:
    """Return a weights file's absolute path; a name of torchvision's stays."""
    if kind_of(weights) == "file":
        return str(Path(weights).absolute())
    if "/" in weights or weights.lower().endswith(WEIGHT_FILES):
        raise TaskError(f"--weights {weights}: no such file: give the file of the model's state_dict")
    return weights


def _weights_here(pattern: str, near: Path) -> str | None:
    """Return weights that are on this device: in the folder of shared data, or where torchvision keeps its own."""
    data = os.environ.get(DATA_VARIABLE) or default_data(Path.cwd()) or default_data(near.absolute())
    home = Path(os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"), "torch"))
    folders = [*([Path(data, "models")] if data is not None else []), home / "hub" / "checkpoints"]
    there = (
        file for folder in folders if pattern and kind_of(folder) == "folder" for file in sorted(folder.glob(pattern))
    )
    return next(
        (str(file.absolute()) for file in there if file.suffix in WEIGHT_FILES and kind_of(file) == "file"), None
    )


def _library_models() -> set[str]:
    """Return the names of torchvision's classifiers, read from its source: importing it takes seconds."""
    spec = find_spec("torchvision")
    folders = spec.submodule_search_locations if spec else None
    sources = (path for folder in folders or () for path in Path(folder, "models").glob("*.py"))
    return {name for path in sources for name in BUILDER.findall(path.read_text(encoding="utf-8"))}
