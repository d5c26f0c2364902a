"""A frozen encoder of static embeddings: a text is the mean of its tokens' vectors. Nothing is fetched.

Source: WordLlama's ``l2_supercat_256``: input embeddings of large language models, projected to 256 numbers a token.
"""

import hashlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from safetensors.numpy import load

from tuner.arrays import Floats
from tuner.errors import TaskError, missing_extra
from tuner.reading import read_bytes
from tuner_text import VARIABLE

PACKAGE = "wordllama"
MOST_BYTES = 2**31
_HASH_BYTES = 4


class Encoder:
    """Static embeddings of tokens.

    Args:
        folder: Folder in which, at any depth, are a tokenizer of the package tokenizers (``tokenizer.json``), and the
            vectors of its tokens (``*.safetensors``), one array [tokens, d].

    Attributes:
        name: Name of the vectors' file, and a hash of both files: what a bundle says that its texts are read by.

    Raises:
        TunerError: The folder holds no such pair of files, or the package is not installed; the extra is named.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer

            (words,) = [*folder.rglob("tokenizer.json")] or folder.rglob("*tokenizer*.json")
            (vectors,) = folder.rglob("*.safetensors")
            content = [read_bytes(path, MOST_BYTES) for path in (words, vectors)]
            self._tokenizer = Tokenizer.from_str(content[0].decode())
            (self._vectors,) = load(content[1]).values()
            (tokens, _), least = self._vectors.shape, self._tokenizer.get_vocab_size()
            if tokens < least:
                raise ValueError(f"{tokens:,} vectors of {least:,} tokens")  # noqa: TRY301 - it is named below
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        except Exception as error:  # tokenizers raises plain exceptions
            raise TaskError(
                f"{folder}: no encoder ({error}): it must hold one tokenizer.json, and one *.safetensors of one array "
                f"[tokens, d]; give another folder in {VARIABLE}, or unset it for that of the package {PACKAGE}"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = f"{vectors.stem} {hashlib.blake2b(b''.join(content), digest_size=_HASH_BYTES).hexdigest()}"

    def __call__(self, text: str) -> Floats:
        """Return a text's features, float32 [d], whose mean square is 1; zeros of a text without tokens."""
        tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        total: Floats = self._vectors[tokens].sum(axis=0, dtype=np.float32)  # as the mean, but for its length
        return total * np.float32(np.sqrt(total.size) / (np.linalg.norm(total) or 1))


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
