"""Sections of a task file as specifications of the input and the model."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.distribution import SWITCH, offered
from tuner.errors import StoreError, TaskError, nearest
from tuner.reading import kind_of, path_from
from tuner.targets import KINDS, SINGLE_LABEL, LossSettings
from tuner.task.inputs import input_kind
from tuner.task.reader import DefaultsOf, nobody_says
from tuner.task.spec import LIBRARIES, MODEL_FILES, InputDefaults, InputSpec, ModelSpec, Pretrain

if TYPE_CHECKING:
    from tuner.task.file.schema import LossSection, ModelSection, TaskFile

_PUBLISHED_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def input_spec(
    file: "TaskFile", path: Path, model: ModelSpec, defaults_of: DefaultsOf = nobody_says
) -> tuple[InputSpec, tuple[str, ...]]:
    """Return how samples become the model's input, and lines on where that is not how the published model has it.

    Raises:
        TaskError: A value is missing, or does not fit the kind of the samples.
    """
    name, section = file.local.kind, file.input
    if file.global_ is not None and file.global_.kind != name:
        raise TaskError(
            f"{path}: global.kind = {file.global_.kind!r} and local.kind = {name!r} must agree: one model reads both"
        )
    given = {key: getattr(section, key) for key in ("size", "resize", "window", "hop")}
    given |= {"mean": tuple(section.mean), "std": tuple(section.std)}
    cautions: list[str] = []

    def published() -> InputDefaults | None:
        defaults = defaults_of(model)
        cautions.extend([defaults.caution] if defaults is not None and defaults.caution else [])
        return defaults

    try:
        kind = input_kind(name)
        values = kind.completed(given, published)
        spec = InputSpec(name, **{**values, "resize": values["resize"] or values["size"]})
        kind.check(spec, section.recording)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None
    return spec, tuple(cautions)


def model_spec(section: "ModelSection", path: Path) -> ModelSpec:
    """Return the network and its weights, with absolute paths.

    Raises:
        TaskError: The factory is no ``module:callable`` and no name of a published model, or a file is missing.
    """
    weights, files = section.weights, offered(MODEL_FILES)
    ending = str(weights).lower().rpartition(".")[2]
    pretrain = Pretrain(**section.pretrain.model_dump()) if section.pretrain else None
    names = section.input, section.output
    if weights is not None and ending in files:
        if section.factory is not None or section.arguments:
            extra = "arguments" if section.factory is None else "factory"
            raise TaskError(f"{path}: the file {weights} holds the network too: leave model.{extra} out")
        return ModelSpec(f"{ending}:{_existing(weights, path, 'model.weights')}", (), None, pretrain, (), *names)
    if section.factory is None:
        there = ", ".join(f".{name}" for name in files) or "none"
        raise TaskError(
            f"{path}: model.factory is missing: add it, such as torchvision.models:mobilenet_v2, or give as "
            f"model.weights a file that an installed plugin opens as a model ({there}): see `tuner plugins`, and "
            f"{SWITCH}, which switches plugins off"
        )
    if weights is not None and (_is_path(weights) or kind_of(path_of(weights, path.parent)) == "file"):
        weights = str(_existing(weights, path, "model.weights").absolute())
    arguments = tuple((key, _frozen(value)) for key, value in sorted(section.arguments.items()))
    return ModelSpec(_factory(section.factory, path), arguments, weights, pretrain, (), *names)


def _is_path(weights: str) -> bool:
    """Return whether weights are a file: names of torchvision's have no dot."""
    return any(mark in weights for mark in "/\\.")


def _factory(text: str, path: Path) -> str:
    """Return a factory, a file or a folder in it as an absolute path."""
    library, _, name = text.partition(":")
    if library in offered(MODEL_FILES):
        raise TaskError(f"{path}: a file .{library} is given as model.weights, without model.factory, got {text!r}")
    if library in LIBRARIES:
        folder = path_of(name, path.parent)
        is_hub = _PUBLISHED_NAME.fullmatch(name) and "/" in name  # other names are folders, and never leave the device
        if library == "hf" and (kind_of(folder) == "folder" or name.startswith(("/", ".", "~")) or not is_hub):
            if kind_of(folder / "config.json") != "file":
                near = nearest(name, [each.parent.name for each in path.parent.glob("*/config.json")])
                raise TaskError(
                    f"{path}: model.factory: {folder} is no folder of a model, as it holds no config.json{near}: paths "
                    "are relative to the task file; save_pretrained writes such a folder. A model of the hub has an "
                    "owner: hf:OWNER/NAME"
                )
            return f"hf:{folder.absolute()}"
        if _PUBLISHED_NAME.fullmatch(name):
            return text
        raise TaskError(f"{path}: model.factory must have a name after {library}:, got {text!r}: e.g. timm:resnet18")
    module, colon, function = text.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise TaskError(
            f"{path}: model.factory must be module:callable or file.py:callable, timm:name or hf:name, got {text!r}: "
            "e.g. torchvision.models:mobilenet_v2"
        )
    return f"{_existing(module, path, 'model.factory') if module.endswith('.py') else module}:{function}"


def loss_settings(section: "LossSection", path: Path) -> LossSettings:
    """Return the settings of the loss; a `TaskError` for one of another kind of loss."""
    for kind in KINDS.values():
        key = next((key for key in sorted(kind.own_settings) if getattr(section, key) is not None), None)
        if key is not None and section.kind != kind.name:
            raise TaskError(f'{path}: loss.{key} is for loss.kind = "{kind.name}", got "{section.kind}": leave it out')
    top_k = SINGLE_LABEL.settings.top_k if section.top_k is None else section.top_k
    return LossSettings(section.delta, section.label_smoothing or 0.0, top_k)


def augment_operations(ops: list[str], kind: str, path: Path) -> tuple[str, ...]:
    """Return the operations of ``augment.ops``, sorted; a `TaskError` for one that samples of the kind cannot take."""
    try:
        input_kind(kind).check_operations(frozenset(ops))
    except StoreError as error:
        raise TaskError(f"{path}: augment.ops: {error}") from None
    return tuple(sorted(set(ops)))


def path_of(text: str, folder: Path) -> Path:
    """Return a path of a task file: relative to its folder, or absolute."""
    try:
        return folder / Path(path_from(text)).expanduser()
    except RuntimeError:  # "~name" of a user that there is not
        return folder / path_from(text)


def _existing(text: str, path: Path, key: str) -> Path:
    file = path_of(text, path.parent)
    if kind_of(file) != "file":
        raise TaskError(f"{path}: {key}: no such file {file}: paths are relative to the task file")
    return file


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
