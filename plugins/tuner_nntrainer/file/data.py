"""The files that a model file names: data, and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuner.errors import ModelError
from tuner_nntrainer.file.ini import read_sections
from tuner_nntrainer.file.sections import choice, word

Part = Literal["train", "val", "test"]
#: Sections of data by part, and the keys of the older [DataSet].
_SECTIONS: Mapping[Part, tuple[str, str]] = {
    "train": ("train_set", "traindata"),
    "val": ("valid_set", "validdata"),
    "test": ("test_set", "testdata"),
}


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Paths as written.

    Attributes:
        paths: By part: the section's name, and the path.
        weights: The path of ``save_path``; None where it is not given.
    """

    paths: Mapping[Part, tuple[str, str]]
    weights: str | None = None


def data_files(path: Path) -> DataFiles:
    """Return the files that a model file names.

    Raises:
        ModelError: A section of data has no path, or data is named twice.
    """
    by_name = {section.name.lower(): section for section in read_sections(path)}
    paths: dict[Part, tuple[str, str]] = {}
    older = by_name.get("dataset")
    for part, (name, key) in _SECTIONS.items():
        section = by_name.get(name)
        if section is not None:
            choice(section, "type", ("file",), "file")
            paths[part] = section.name, word(section, "path", "the file of the data")
        if older is not None and key in older.keys:
            if part in paths:
                raise ModelError(f"{older.place}: {key} is also given by [{name}]: keep one")
            paths[part] = older.name, older.keys[key]
    model = by_name.get("model")
    return DataFiles(paths, None if model is None else model.keys.get("save_path"))
