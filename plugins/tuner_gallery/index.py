"""An index: a file of plugins that may be installed, with what each adds and what was measured of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from tuner.errors import PluginError
from tuner.plan.info import FORBID
from tuner.reading import parse_toml, read_text
from tuner.untrusted import parse_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA = "plugins-index-1"
#: The index of the cookbook's methods, which comes with `tuner`.
COOKBOOK = "cookbook.json"
#: Plugins that a file may have.
MOST = 10_000
WAY_OUT = "see tuner plugins search in the documentation for the format"
_READ: dict[str, Any] = {**FORBID, "allow_inf_nan": False}
Share = Annotated[float, Field(ge=0, le=1)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Line = Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True, slots=True)
class Measured:
    """A plugin's results on a task of `benchmarks.methods`.

    Attributes:
        task: Name of the task.
        local_accuracy: Mean over seeds, of test samples of the user's.
        global_accuracy: The same of the global data; None where there are none.
        points: Difference from fine-tuning on the same seeds, in points.
        seeds: Number of seeds.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    task: Word
    local_accuracy: Share
    global_accuracy: Share | None = None
    points: Annotated[float, Field(ge=-100, le=100)] | None = None
    seeds: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A plugin.

    Attributes:
        name: Name of the plugin's entry point.
        adds: What it adds, such as ``strategy slda``.
        summary: What it is for, in a sentence.
        license: SPDX expression.
        install: Command that installs or uses it.
        address: Where its source is.
        measured: What was measured of it.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    name: Word
    adds: tuple[Word, ...] = ()
    summary: Line = ""
    license: Line = ""
    install: Line = ""
    address: Line = ""
    measured: tuple[Measured, ...] = ()

    def has(self, words: Sequence[str]) -> bool:
        """Return whether every word is somewhere in the entry, in letters of any case."""
        whole = " ".join((self.name, *self.adds, self.summary, self.license, self.install, self.address)).lower()
        return all(word.lower() in whole for word in words)

    def is_called(self, words: Sequence[str]) -> bool:
        """Return whether every word is in the name."""
        return all(word.lower() in self.name.lower() for word in words)


@dataclass(frozen=True, slots=True)
class Index:
    """A file of plugins."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _READ
    plugins: tuple[Entry, ...]


def read_index(path: Path) -> Index:
    """Read an index, of JSON or TOML.

    Raises:
        PluginError: The file is no index that can be read.
    """
    text = read_text(path, PluginError, WAY_OUT)
    try:
        content = parse_toml(text) if path.suffix == ".toml" else parse_json(text.encode())
    except ValueError as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise PluginError(f"{path}: not valid {kind} ({error}): {WAY_OUT}") from None
    return index_of(content, str(path))


def index_of(content: object, where: str) -> Index:
    """Return the index that a file's content is; `where` names the file in errors."""
    from pydantic import ValidationError

    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise PluginError(f"{where}: schema must be {SCHEMA!r}, got {schema!r:.40}: {WAY_OUT}, or update tuner")
    try:
        # as JSON, where strict types leave lists to be tuples
        index = _adapter().validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PluginError(f"{where}: {place}: {first['msg']}, got {first['input']!r:.60}: {WAY_OUT}") from None
    if len(index.plugins) > MOST:
        raise PluginError(
            f"{where}: there may be at most {MOST:,} plugins, got {len(index.plugins):,}: divide the file"
        )
    return index


def cookbook() -> Index:
    """Return the index of the cookbook's methods."""
    return index_of(json.loads(files("tuner_gallery").joinpath(COOKBOOK).read_text(encoding="utf-8")), COOKBOOK)


@cache
def _adapter() -> "TypeAdapter[Index]":
    from pydantic import TypeAdapter

    return TypeAdapter(Index)
