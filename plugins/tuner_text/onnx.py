"""An encoder in ONNX, as sentence-transformers and Optimum export them: numpy and ONNX Runtime alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Floats
from tuner.errors import TaskError, first_line
from tuner.ort.session import open_session
from tuner.reading import read_text
from tuner_text.files import EncoderFiles

#: Most tokens of a text, the rest is left out, where the tokenizer's file says no other number.
MOST_TOKENS = 512
#: Inputs that it may take, int64 [n, tokens], and what each holds of a text that is read alone.
FILLS = {"input_ids": None, "attention_mask": 1, "token_type_ids": 0}
#: Outputs that are read, the first that it has: [n, d], or of each token, [n, tokens, d].
OUTPUTS = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_OF_TEXT, _OF_TOKENS = 2, 3  # dimensions


class OnnxFeatures:
    """The model's own embedding of a text, or the mean of those of its tokens.

    Where ``1_Pooling/config.json`` says so, it is that of the first token. One thread runs it: such a session survives
    the fork of a trial, and gives the same numbers on every device of a kind.

    Args:
        files: The encoder's files.
        least: Size of the tokenizer's vocabulary.

    Raises:
        TaskError: The file is no such model, or knows fewer tokens.
    """

    def __init__(self, files: EncoderFiles, least: int) -> None:
        self._file = files.model
        self._session = open_session(self._file, 1, error=TaskError)
        self._takes = [one.name for one in self._session.get_inputs()]
        gives = [one.name for one in self._session.get_outputs()]
        if "input_ids" not in self._takes or not FILLS.keys() >= {*self._takes}:
            takes = ", ".join(self._takes)
            raise TaskError(
                f"{self._file.name} must take input_ids, maybe attention_mask and token_type_ids, but takes {takes}"
            )
        if not {*OUTPUTS} & {*gives}:
            raise TaskError(f"{self._file.name} must give {' or '.join(OUTPUTS)}, but gives {', '.join(gives)}")
        self._gives = next(name for name in OUTPUTS if name in gives)
        self._takes_first = any(self._pools_first(path) for path in files.about if path.suffix == ".json")
        self.size = self([least - 1]).size

    def __call__(self, tokens: Sequence[int]) -> Floats:
        """Return the features of a text's tokens, float32 [d]."""
        ids = np.array([tokens], np.int64)
        fills = {**FILLS, "input_ids": ids}
        feed = {name: np.full_like(ids, fills[name]) for name in self._takes}
        try:
            (value,) = self._session.run([self._gives], feed)
        except Exception as error:  # onnxruntime raises many kinds
            raise TaskError(
                f"{self._file.name} cannot read the tokens of tokenizer.json: it fails on {len(tokens)} of them, with "
                f"numbers up to {max(tokens)} ({first_line(error)})"
            ) from error
        if value.ndim == _OF_TOKENS:
            value = value[:, 0] if self._takes_first else value.mean(axis=1)
        if value.ndim != _OF_TEXT:
            raise TaskError(f"{self._gives} of {self._file.name} must be [n, d] or [n, tokens, d], got {value.shape}")
        features: Floats = value[0].astype(np.float32)
        return features

    def _pools_first(self, path: Path) -> bool:
        """Return whether a text's features are those of its first token, and not the mean."""
        try:
            content = dict(json.loads(read_text(path, TaskError, "export the encoder again")))
        except (TypeError, ValueError, RecursionError) as error:
            raise TaskError(
                f"{path.name} is no object of JSON ({first_line(error)}): export the encoder again"
            ) from error
        modes = {name.removeprefix("pooling_mode_") for name, is_on in content.items() if is_on is True}
        modes -= {"include_prompt"}
        if self._gives in OUTPUTS[1:] and modes not in ({"cls_token"}, {"mean_tokens"}):
            raise TaskError(
                f"{path.name} must have the mode mean_tokens or cls_token, got {', '.join(sorted(modes)) or 'none'}"
            )
        return modes == {"cls_token"}
