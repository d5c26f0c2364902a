"""The part of an ONNX file that has no form in PyTorch, as a module: ONNX Runtime runs it as it is."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuner.errors import TaskError
from tuner.ort.session import open_session

#: Domain and name of the operator that stands for the nodes in an export, and the name of what the nodes give.
DOMAIN, OPERATOR, VALUE = "tuner", "Frozen", "value"
#: Content of the files by its hash: an operator of PyTorch takes numbers and text only.
CONTENTS: dict[str, bytes] = {}
#: Sessions by process, as none survives a fork, by threads and by file.
_SESSIONS: dict[tuple[int, int, str], Any] = {}


class FrozenOnnx(nn.Module):
    """Runs nodes of a file, without gradients.

    Args:
        content: The nodes as a file; see `tuner.backends.torch.importing.splice.extracted`.
        shape: Shape of the value that they give, for one sample.

    Attributes:
        digest: Hash of the nodes and their weights.
        shape: The same.
    """

    def __init__(self, content: bytes, shape: Sequence[int]) -> None:
        super().__init__()
        self.digest, self.shape = hashlib.blake2b(content, digest_size=16).hexdigest(), list(shape)
        CONTENTS[self.digest] = content

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the value, float32 [n, ...]; in an export, stand for the nodes until `splice` puts them there."""
        if torch.onnx.is_in_onnx_export():
            operator, about = f"{DOMAIN}::{OPERATOR}", dict[str, Any](digest=self.digest)
            shape = (batch.shape[0], *self.shape)
            value: torch.Tensor = torch.onnx.ops.symbolic(
                operator, (batch,), about, dtype=batch.dtype, shape=shape, version=1
            )
            return value
        frozen: torch.Tensor = run_frozen(batch, self.digest, self.shape)
        return frozen


@torch.library.custom_op("tuner::frozen_onnx", mutates_args=())
def run_frozen(batch: torch.Tensor, digest: str, shape: Sequence[int]) -> torch.Tensor:
    """Run a file's nodes on a batch."""
    key = os.getpid(), torch.get_num_threads(), digest
    if key not in _SESSIONS:
        _SESSIONS[key] = open_session(Path(digest), key[1], content=CONTENTS[digest], error=TaskError)
    session = _SESSIONS[key]
    (value,) = session.run([VALUE], {session.get_inputs()[0].name: batch.detach().contiguous().numpy()})
    return torch.from_numpy(value).reshape(len(batch), *shape)


@run_frozen.register_fake
def _(batch: torch.Tensor, digest: str, shape: Sequence[int]) -> torch.Tensor:  # noqa: ARG001 - as the operator has it
    return batch.new_empty((batch.shape[0], *shape))


run_frozen.register_autograd(lambda _, __: (None, None, None))  # nothing before it trains
