"""Hashes of what a model computes: of its weights, of its structure, of both."""

import hashlib
import re

import torch
from torch import fx, nn


def state_hash(*modules: nn.Module) -> str:
    """Hash every weight and buffer (32 hex digits)."""
    digest = hashlib.blake2b(digest_size=16)
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def structure_hash(module: nn.Module) -> str:
    """Hash what a module computes apart from its weights (32 hex digits): its code, each part's class and settings.

    The code of a traced graph says ``self.act(x)``; only the part's class distinguishes a ReLU from a Tanh.
    """
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(module, fx.GraphModule):
        digest.update(module.code.encode())
    for name, part in module.named_modules():
        settings = "" if isinstance(part, fx.GraphModule) else str(_settings(part))
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {settings}".encode())
        for key, value in sorted(part.named_buffers(recurse=False)):
            if key in part._non_persistent_buffers_set:  # noqa: SLF001 - torch has no public name for it
                digest.update(
                    f"{key}{tuple(value.shape)}".encode() + value.detach().cpu().contiguous().numpy().tobytes()
                )
    return digest.hexdigest()


def _settings(part: nn.Module) -> list[tuple[str, str]]:
    """Return a module's public attributes by name, as text, but for its mode."""
    public = {name: value for name, value in vars(part).items() if not name.startswith("_") and name != "training"}
    return sorted((name, _setting_text(value)) for name, value in public.items())


def _setting_text(value: object) -> str:
    """Return a setting as text that is the same in every process."""
    if isinstance(value, torch.Tensor):
        return hashlib.blake2b(value.detach().cpu().contiguous().numpy().tobytes(), digest_size=16).hexdigest()
    return getattr(value, "__qualname__", None) or re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def model_hash(model: nn.Module, traced: nn.Module) -> str:
    """Hash a model's weights and its structure as traced (32 hex digits)."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(state_hash(model).encode())
    digest.update(structure_hash(traced).encode())
    return digest.hexdigest()
