"""From what the user names to a `Task`: a task file, a function in a Python file, or a built-in."""

import hashlib
import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tuner.errors import StoreError, TaskError, TunerError, nearest
from tuner.store.ops import refuse_unlawful
from tuner.task.entry import Entry, Loss, Role, read_entry, read_unlabelled, without_labels
from tuner.task.labels import KnownClass, as_rows, known_classes, union_head
from tuner.task.recordings import read_recordings
from tuner.task.samples import Samples, Subset
from tuner.task.signals import channel_statistics
from tuner.task.spec import InputSpec, Kind, ModelSpec, Pretrain
from tuner.task.split import recording_holdout, stratified_holdout
from tuner.task.task import Domain, Task
from tuner.task.variables import expand

if TYPE_CHECKING:
    from tuner.task.schema import GlobalSection, LocalSection, ModelSection, TaskFile

_WEIGHT_SUFFIXES = (".pth", ".pt", ".safetensors")


def load_task(text: str, builtin: Mapping[str, Callable[[], Task]] = {}) -> Task:
    """Load the task a user names.

    Args:
        text: The path of a ``task.toml``, ``file.py:function``, or the name of a built-in task.
        builtin: The built-in tasks by name.

    Raises:
        TaskError: Nothing of that name, or what it names cannot be used; one line that says why.
    """
    if text in builtin:
        return builtin[text]()
    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_python(Path(file).expanduser().absolute(), function)
    path = Path(text).expanduser().absolute()
    if path.is_dir() and (path / "task.toml").is_file():
        path /= "task.toml"
    if path.suffix == ".toml":
        return _from_toml(path)
    if path.is_file():
        raise TaskError(f"{text}: a task is a .toml file or file.py:function; this is {path.suffix or 'neither'!r}")
    raise TaskError(
        f"no task {text!r}{nearest(text, builtin)}: give a task.toml, file.py:function, "
        f"or a built-in ({', '.join(sorted(builtin)) or 'none here'})"
    )


def _from_python(path: Path, function: str) -> Task:
    if not path.is_file():
        raise TaskError(f"{path}: no such file, wanted for its function {function!r}")
    try:
        module = _import_file(path)
        build = getattr(module, function, None)
        task = build() if callable(build) else None
    except TunerError:
        raise
    except Exception as error:  # the user's own code: whatever it raises, they need the line
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        said = (str(error).splitlines() or [""])[0]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise TaskError(f"{path}{f':{line}' if line else ''} raised {type(error).__name__}: {said}") from error
    if not callable(build):
        known = [name for name, value in vars(module).items() if callable(value)]
        raise TaskError(f"{path}: no function {function!r} in it{nearest(function, known)}")
    if not isinstance(task, Task):
        raise TaskError(f"{path}:{function} wants to return a tuner.Task, got {type(task).__name__}")
    return task


def _import_file(path: Path) -> ModuleType:
    name = f"_tuner_task_{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise TaskError(f"{path}: cannot be imported as Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_toml(path: Path) -> Task:
    from tuner.task import schema

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror or error}): a task file is wanted") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: not valid TOML ({error})") from error
    file = schema.parse(expand(values, path), path)
    labelled = file.local.labels == "given"
    if not labelled and file.global_ is None:
        raise TaskError(f'{path}: local.labels = "none" wants [global], whose classes the model then answers with')
    spec = _input(file, path)
    folder, loss = path.parent, file.loss.kind

    entries = _entries(file.local, folder, spec, loss)
    known_entries = _entries(file.global_, folder, spec, loss) if file.global_ else None
    known: tuple[KnownClass, ...] = ()
    if file.global_ is not None and known_entries is not None:
        classes = _path(file.global_.classes, folder) if file.global_.classes else None
        known = known_classes(known_entries["train"], classes)
    train = entries["train"]
    head = union_head(known, [train.names[place] for place in train.occurring()] if labelled else [])
    width = len(head.labels)
    if loss == "single-label" and width == 1:
        raise TaskError(f"{path}: the only class is {head.labels[0]!r}: a single-label task wants at least two")
    local = _domain("local", entries, head.local_rows if labelled else {"": 0}, width)
    global_ = _domain("global", known_entries, head.global_rows, width) if known_entries else None
    return Task(
        name=file.name or path.resolve().parent.name,
        model=_model(file.model, path),
        input=_standardised(spec, local, global_, path),
        loss=loss,
        local=local,
        global_=global_,
        labels=head.labels,
        head_rows=head.head_rows,
        local_labels=tuple(sorted(set(head.local_rows.values()))),
        augment=_lawful(file.augment.ops, spec.kind, path),
        labelled=labelled,
    )


def _standardised(spec: InputSpec, local: Domain, global_: Domain | None, path: Path) -> InputSpec:
    """Give signals the mean and deviation of what the model trained on: the global training windows, if any.

    Raises:
        TaskError: A channel is constant, or the two domains differ in their channels.
    """
    if spec.kind != "signals":
        return spec
    domains = {"local": local} if global_ is None else {"global": global_, "local": local}
    shapes = {f"{title}.{name}": one.load(0).shape for title, part in domains.items() for name, one in part.splits()}
    where, shape = next(iter(shapes.items()))
    other = next((name for name in shapes if shapes[name] != shape), None)
    if other is not None:
        raise TaskError(
            f"{path}: {other} gives windows of {list(shapes[other])}, {where} of {list(shape)}: "
            "recordings of one task want the same channels, and input.window if lengths differ"
        )
    if spec.mean or spec.std:
        return spec
    title, domain = next(iter(domains.items()))
    mean, std = channel_statistics(domain.train, f"{path}: {title}.train")
    return replace(spec, mean=mean, std=std)


def _lawful(ops: list[str], kind: Kind, path: Path) -> tuple[str, ...]:
    try:
        refuse_unlawful(frozenset(ops), kind)
    except StoreError as error:
        raise TaskError(f"{path}: augment.ops: {error}") from None
    return tuple(sorted(set(ops)))


def _input(file: "TaskFile", path: Path) -> InputSpec:
    kind, said = file.local.kind, file.input
    if file.global_ is not None and file.global_.kind != kind:
        raise TaskError(
            f"{path}: global.kind = {file.global_.kind!r} and local.kind = {kind!r} must agree: one model reads both"
        )
    if kind == "images" and said.size is None:
        raise TaskError(f'{path}: input.size is missing, and kind = "images" needs it: e.g. size = 160')
    for key, values in (("mean", said.mean), ("std", said.std)):
        if kind == "images" and len(values) not in {1, 3}:
            raise TaskError(
                f"{path}: input.{key} wants 1 or 3 values for images, got {values}: give what the model was "
                "trained with, e.g. mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] for ImageNet"
            )
    resize = said.resize if said.resize is not None else said.size
    try:
        return InputSpec(kind, said.size, resize, tuple(said.mean), tuple(said.std), said.window, said.hop)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None


def _model(said: "ModelSection", path: Path) -> ModelSpec:
    module, colon, function = said.factory.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise TaskError(
            f"{path}: model.factory wants module:callable or file.py:callable, got {said.factory!r}: "
            "e.g. torchvision.models:mobilenet_v2"
        )
    if module.endswith(".py"):
        module = str(_existing(module, path, "model.factory"))
    weights = said.weights
    if weights is not None and ("/" in weights or "\\" in weights or weights.lower().endswith(_WEIGHT_SUFFIXES)):
        weights = str(_existing(weights, path, "model.weights"))
    arguments = tuple((key, _frozen(value)) for key, value in sorted(said.arguments.items()))
    pretrain = Pretrain(**said.pretrain.model_dump()) if said.pretrain else None
    return ModelSpec(f"{module}:{function}", arguments, weights, pretrain)


def _existing(text: str, path: Path, key: str) -> Path:
    found = _path(text, path.parent)
    if not found.is_file():
        raise TaskError(f"{path}: {key}: no such file {found}: paths are relative to the task file")
    return found


def _path(text: str, folder: Path) -> Path:
    return folder / Path(text).expanduser()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _entries(section: "GlobalSection | LocalSection", folder: Path, spec: InputSpec, loss: Loss) -> dict[Role, Entry]:
    """Read a section's entries; the same data may not serve as two splits."""
    said: tuple[tuple[Role, str | None], ...] = (("train", section.train), ("val", section.val), ("test", section.test))
    found: dict[Role, Entry] = {}
    for role, text in said:
        if text is None:
            continue
        names, where = found["train"].names if "train" in found else None, _path(text, folder)
        labelled = getattr(section, "labels", "given") == "given"
        if spec.kind == "signals":
            entry = read_recordings(where, role, spec, loss, names)
            entry = entry if labelled else without_labels(entry, loss)
        else:
            entry = read_entry(where, role, spec, loss, names) if labelled else read_unlabelled(where, role, spec, loss)
        twin = next((other for other, known in found.items() if _overlap(known, entry)), None)
        if twin is not None:
            raise TaskError(
                f"{entry.source}: is both {twin} and {role}, so that scores would be of samples seen: "
                f"give other data, or leave {role} out"
            )
        found[role] = entry
    return found


def _overlap(one: Entry, other: Entry) -> bool:
    mine, theirs = (set(entry.origin.names) if entry.origin is not None else {entry.source} for entry in (one, other))
    return not mine.isdisjoint(theirs)


def _domain(title: str, entries: Mapping[Role, Entry], rows: Mapping[str, int], width: int) -> Domain:
    splits: dict[Role, Samples] = {
        role: entry.build(as_rows(entry, rows, width, f"{title}.{role}")) for role, entry in entries.items()
    }
    train, val = splits["train"], splits.get("val")
    if val is None:
        entry = entries["train"]
        origin, noun = entry.origin, "samples" if entry.origin is None else "recordings"
        rest, held = (
            stratified_holdout(train.labels)
            if origin is None
            else recording_holdout(train.labels, origin.recordings, origin.sessions)
        )
        if len(held) == 0:
            raise TaskError(f"{entry.source}: no class has two {noun}, so that none can be held out: give {title}.val")
        train, val = Subset(train, rest), Subset(train, held)
    return Domain(train, val, splits.get("test"))
