"""Frozen encoders of texts: static embeddings, or a model in ONNX. Nothing is fetched.

A text's static features are the mean of its tokens' vectors. Source of the usual ones: WordLlama's ``l2_supercat_256``:
input embeddings of large language models, projected to 256 numbers a token.
"""

import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tuner.arrays import Floats
from tuner.errors import TaskError, first_line, missing_extra
from tuner.reading import read_bytes
from tuner_text import PACKAGE, VARIABLE
from tuner_text.files import EncoderFiles, refused

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_BYTES = 2**31
#: Texts whose features an encoder keeps: with 384 numbers each, 100 MB.
MOST_KEPT = 2**16


class Features(Protocol):
    """What makes features of a text's tokens, of which there is at least one; `size` is how many numbers."""

    size: int

    def __call__(self, tokens: Sequence[int]) -> Floats:
        """Return the features, float32 [size]."""


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
            raise TaskError(f"{file.name} has only {tokens:,} vectors for {least:,} tokens")

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
