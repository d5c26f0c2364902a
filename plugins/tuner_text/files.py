"""The files of an encoder in a folder, and their name; what is missing is named."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from tuner.errors import TaskError
from tuner.reading import kind_of, open_regular
from tuner_text import PACKAGE, VARIABLE

ONNX = ".onnx"
#: Where sentence-transformers says how the features of tokens become those of a text.
POOLING = "1_Pooling/config.json"
_HASH_BYTES, _BLOCK_BYTES = 4, 2**20


class EncoderFiles(NamedTuple):
    """The files of an encoder; `about` are further ones that its features depend on."""

    words: Path
    model: Path
    about: tuple[Path, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> "EncoderFiles":
        """Find them in a folder, at any depth.

        Raises:
            TaskError: One is missing, or there are two of it.
        """
        if kind_of(folder) != "folder":
            raise refused(folder, "there is no such folder")
        words = _only(folder, "tokenizer.json", "tokenizer.json", "*_tokenizer_config.json")
        model = _only(folder, "model.onnx and no *.safetensors", f"model{ONNX}", f"*{ONNX}", "*.safetensors")
        about = (*model.parent.glob(f"{model.name}?*"), *folder.rglob(POOLING)) if model.suffix == ONNX else ()
        return cls(words, model, tuple(sorted(about)))

    @property
    def is_onnx(self) -> bool:
        """Whether the model is one in ONNX."""
        return self.model.suffix == ONNX

    def name(self) -> str:
        """Return the name of the model's file, and a hash of all: what a bundle says that its texts are read by."""
        content = hashlib.blake2b(digest_size=_HASH_BYTES)
        for path in (self.words, self.model, *self.about):
            with open_regular(path) as file:
                while block := file.read(_BLOCK_BYTES):
                    content.update(block)
        return f"{self.model.name if self.is_onnx else self.model.stem} {content.hexdigest()}"


def refused(folder: Path, reason: str) -> TaskError:
    """Return the error of a folder that is no encoder."""
    return TaskError(
        f"{folder}: no encoder of texts ({reason}): it must hold tokenizer.json, and model.onnx or a *.safetensors of "
        f"one array [tokens, d]: give another folder by --encoder or {VARIABLE}, or none to use the package {PACKAGE}"
    )


def _only(folder: Path, kind: str, *patterns: str) -> Path:
    """Return the only file of the first pattern that any file in a folder has; `kind` is what errors call it."""
    found = next(filter(None, (sorted(folder.rglob(pattern)) for pattern in patterns)), [])
    if not found:
        raise refused(folder, f"there is no {kind}")
    if len(found) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in found)
        raise refused(folder, f"there are {len(found)}, keep one: {names:.200}")
    return found[0]
