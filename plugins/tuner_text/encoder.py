"""Frozen encoders of texts: static embeddings, or a model in ONNX. Nothing is fetched.

A text's static features are the mean of its tokens' vectors. Source of the usual ones: WordLlama's ``l2_supercat_256``:
input embeddings of large language models, projected to 256 numbers a token.
"""

import hashlib
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tuner.arrays import Floats
from tuner.errors import TaskError, first_line, missing_extra
from tuner.reading import kind_of, open_regular, read_bytes
from tuner_text import VARIABLE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "wordllama"
ONNX = ".onnx"
#: Where sentence-transformers says how the features of tokens become those of a text.
POOLING = "1_Pooling/config.json"
MOST_BYTES = 2**31
#: Texts whose features an encoder keeps: with 384 numbers each, 100 MB.
MOST_KEPT = 2**16
_HASH_BYTES, _BLOCK_BYTES = 4, 2**20


class Features(Protocol):
    """What makes features of a text's tokens, of which there is at least one; `size` is how many numbers."""

    size: int

    def __call__(self, tokens: Sequence[int]) -> Floats:
        """Return the features, float32 [size]."""


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


class Encoder:
    """A tokenizer, and what makes features of tokens.

    Args:
        folder: Folder in which, at any depth, are a tokenizer of the package tokenizers (``tokenizer.json``), and a
            model in ONNX (``model.onnx``, see `tuner_text.onnx`), or the vectors of the tokens (``*.safetensors``), one
            array [tokens, d].

    Attributes:
        name: As `EncoderFiles.name`.

    Raises:
        TunerError: The folder holds no such pair of files, or the package is not installed; the extra is named.
    """

    def __init__(self, folder: Path) -> None:
        files = EncoderFiles.of(folder)
        try:
            self.name = files.name()
            self._tokenizer = _tokenizer(files.words)
            self._features = self._features_of(files)
        except (TaskError, OSError) as error:
            raise refused(folder, str(error)) from error
        self._tokenizer.no_padding()
        self._is_onnx = files.is_onnx
        self._kept = lru_cache(MOST_KEPT if self._is_onnx else 0)(self._encoded)

    def __call__(self, text: str) -> Floats:
        """Return a text's features, float32 [d], whose mean square is 1; zeros of a text without tokens."""
        return self._kept(text)

    def _features_of(self, files: EncoderFiles) -> Features:
        least = self._tokenizer.get_vocab_size()
        if not files.is_onnx:
            self._tokenizer.no_truncation()
            return Vectors(files.model, least)
        from tuner_text.onnx import MOST_TOKENS, OnnxFeatures

        if self._tokenizer.truncation is None:
            self._tokenizer.enable_truncation(MOST_TOKENS)
        return OnnxFeatures(files, least)

    def _encoded(self, text: str) -> Floats:
        tokens = self._tokenizer.encode(text, add_special_tokens=self._is_onnx).ids
        features = self._features(tokens) if tokens else np.zeros(self._features.size, np.float32)
        scaled: Floats = features * np.float32(np.sqrt(features.size) / (np.linalg.norm(features) or 1))
        scaled.setflags(write=False)
        return scaled


class Vectors:
    """Static embeddings: a vector of each token."""

    def __init__(self, file: Path, least: int) -> None:
        try:
            (self._vectors,) = load(read_bytes(file, MOST_BYTES)).values()
            tokens, self.size = self._vectors.shape
        except (SafetensorError, ValueError) as error:
            raise TaskError(f"{file.name} must hold one array [tokens, d], but: {error}") from error
        if tokens < least:
            raise TaskError(f"{file.name} has {tokens:,} vectors of {least:,} tokens")

    def __call__(self, tokens: Sequence[int]) -> Floats:
        """Return the sum, which is the mean but for its length."""
        total: Floats = self._vectors[tokens].sum(axis=0, dtype=np.float32)
        return total


def _tokenizer(file: Path) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(read_bytes(file, MOST_BYTES).decode())
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    except Exception as error:  # tokenizers raises plain exceptions
        raise TaskError(f"{file.name} holds no tokenizer: {first_line(error)}") from error


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
        raise refused(folder, f"there are {len(found)}: {names:.200}")
    return found[0]


def encoder() -> Encoder:
    """Return the encoder of the folder that `VARIABLE` names, else WordLlama's, once a process; errors as `Encoder`."""
    return _encoder(os.environ.get(VARIABLE, ""))


@cache
def _encoder(folder: str) -> Encoder:
    if folder:
        return Encoder(Path(folder))
    spec = find_spec(PACKAGE)  # its own code is not run: it would import what fetches files
    if spec is None or spec.origin is None:
        missing = ModuleNotFoundError(f"no package {PACKAGE}", name=PACKAGE)
        raise missing_extra(missing) or missing
    return Encoder(Path(spec.origin).parent)
