"""The schema of a task file; imported only when one is read, as it needs pydantic."""

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from tuner.errors import TaskError, nearest
from tuner.targets import LossKind


class Section(BaseModel):
    """A table of the file: known keys only, and no conversion of types beyond integer to float."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class PretrainSection(Section):
    """Training of the whole model before the study."""

    epochs: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    batch_size: int = Field(default=64, ge=1)


class ModelSection(Section):
    """The network; of candidates, a run chooses one."""

    candidates: list[str] = []
    factory: str | None = None
    weights: str | None = None
    arguments: dict[str, Any] = {}
    pretrain: PretrainSection | None = None
    input: str | None = None
    output: str | None = None


class DataSection(Section):
    """Data by partitions."""

    kind: str
    train: str
    val: str | None = None
    test: str | None = None


class GlobalSection(DataSection):
    """Data of the classes the model was trained for."""

    classes: str | None = None


class LocalSection(DataSection):
    """The user's own data."""

    labels: Literal["given", "none"] = "given"


class InputSection(Section):
    """How samples become the model's input, and whether files that cannot be read are left out."""

    size: Annotated[int, Field(ge=1)] | None = None
    resize: Annotated[int, Field(ge=1)] | None = None
    mean: list[float] = []
    std: list[Annotated[float, Field(gt=0)]] = []
    window: Annotated[int, Field(ge=1)] | None = None
    hop: Annotated[int, Field(ge=1)] | None = None
    recording: str | None = None
    skip_unreadable: bool = False


class AugmentSection(Section):
    """Random changes that keep a sample's label; training may make them to inputs or to stored maps."""

    ops: list[str] = []


class LabelsSection(Section):
    """How the labels of the local data relate to those of the model: tables, or names of files."""

    map: dict[str, list[str]] | str = {}
    new: list[str] = []
    parents: dict[str, list[str]] | str = {}


class LossSection(Section):
    """What a sample has (one label, several, or targets), and the settings of the loss."""

    kind: LossKind = "single-label"
    delta: Annotated[float, Field(gt=0)] | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    top_k: Annotated[int, Field(ge=2)] | None = None


class TaskFile(Section):
    """The whole file."""

    name: str | None = None
    model: ModelSection
    global_: GlobalSection | None = Field(default=None, alias="global")
    local: LocalSection
    input: InputSection = InputSection()
    labels: LabelsSection | None = None
    augment: AugmentSection = AugmentSection()
    loss: LossSection = LossSection()


def parse(values: dict[str, Any], file: Path) -> TaskFile:
    """Check parsed TOML against the schema; a `TaskError` has file, dotted key, rule and value."""
    try:
        return TaskFile.model_validate(values)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        # A misspelt key is reported twice, as unknown and as missing: the former leads to the way out.
        first = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
        raise TaskError(f"{file}: {_sentence(first['type'], first['loc'], first['msg'], first['input'])}") from error


def _sentence(kind: str, location: tuple[int | str, ...], message: str, value: Any) -> str:
    key = ".".join(str(part) for part in location)
    if kind == "extra_forbidden":
        keys = list(_fields_by_key(_section(location[:-1]) or TaskFile))
        place = f"[{'.'.join(str(part) for part in location[:-1])}]" if location[:-1] else "the file"
        return f"unknown key {key!r}{nearest(str(location[-1]), keys)}; keys of {place}: {', '.join(keys)}"
    if kind == "missing":
        is_table = _section(location) is not None
        return f"{key} is missing: add {f'the section [{key}]' if is_table else 'it'}"
    return f"{key}: {message[:1].lower()}{message[1:]}, got {value!r}"


def _fields_by_key(section: type[Section]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _section(location: tuple[int | str, ...]) -> type[Section] | None:
    """Return the section's class at a place in the file; None for the place of a value."""
    section: type[Section] = TaskFile
    for part in location:
        field = _fields_by_key(section).get(str(part))
        inner = _section_of(field.annotation) if field is not None else None
        if inner is None:
            return None
        section = inner
    return section


def _section_of(annotation: Any) -> type[Section] | None:
    options = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    return next((option for option in options if isinstance(option, type) and issubclass(option, Section)), None)
