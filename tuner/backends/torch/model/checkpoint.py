"""Files of weights as people have them: beside other things, and under the prefixes of what wrapped the model.

Nothing in a file runs: what is no tensor, and no plain value, becomes an object that does nothing.
"""

import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from tuner.errors import TaskError, first_line

#: Names of the weights in what a training script saves; the first one that is there is taken.
ENTRIES = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "weights",
    "params",
    "module",
    "state_dict_ema",
    "model_ema",
    "ema_state_dict",
    "ema",
)
#: Parts of names that torch.compile, checkpointing and sharding put in.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
#: Words in the prefix of a copy of the model that was not trained itself.
COPIES = ("ema", "teacher", "momentum", "target")
_PICKLE_BYTES = 4096  # of a pickle, which name the class of its object
_LENGTH_BYTES = 8  # at the begin of a safetensors file
_WAY_OUT = "save model.state_dict() with torch.save"


class _Inert:
    """Stands for an object of a class that is not loaded."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


def read_checkpoint(path: Path, own: Collection[str]) -> tuple[dict[str, torch.Tensor], str]:
    """Read the weights in a file, by the names of a model's own.

    Args:
        path: The file.
        own: Names of the model's parameters and buffers.

    Returns:
        The tensors, and a line on what was taken where that is not the whole file; else an empty one.

    Raises:
        TaskError: The file cannot be read, or has no weights.
    """
    content = _read(path)
    state, entry = _entry(content, path)
    quantised = next((name for name, value in state.items() if value.is_quantized), None)
    if quantised is not None:
        raise TaskError(
            f"model.weights: {path} is quantised ({quantised!r} is {state[quantised].dtype}), and integers cannot be "
            "trained: give the weights from before the quantisation"
        )
    named = {_without_wrappers(name): value for name, value in state.items()}
    prefix = _prefix(named, own)
    taken = {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
    parts = [f"its entry {entry!r}"] * bool(entry)
    parts += [f"without the prefix {prefix!r}"] * bool(prefix)
    parts += ["without torch.compile's prefixes"] * (set(named) != set(state))
    left = len(named) - len(taken)
    parts += [f"without {left} tensors of other names"] * bool(left)
    others = [key for key in ENTRIES if entry and key != entry.partition(".")[0] and _holds_tensors(content.get(key))]
    parts += [f"not its {', '.join(map(repr, others))}"] * bool(others)
    return taken, f"weights: {len(taken)} tensors of {path.name}, {', '.join(parts)}" if parts else ""


def _read(path: Path) -> Any:
    """Return what a file holds."""
    if _is_safetensors(path):
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise TaskError(
                f"model.weights: {path} cannot be read as a safetensors file ({error}): give another file"
            ) from None
    try:
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path) if zipfile.is_zipfile(path) else []
        with torch.serialization.safe_globals([(_Inert, name) for name in unknown]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kinds of tensors that are deprecated
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch raises many kinds for a file that is not its own
        if "torchscript" in str(error).lower():
            raise TaskError(
                f"model.weights: {path} is a TorchScript archive, whose code is not run: save the state_dict of the "
                "module, torch.jit.load(FILE).state_dict(), with torch.save"
            ) from None
        if _is_pickle(path):
            raise TaskError(
                f"model.weights: {path} is a pickle or joblib file, as scikit-learn writes its models: no PyTorch "
                "network, and loading it would run its code. Convert it with skl2onnx if it is an MLPClassifier and "
                "give the .onnx file; trees and support vectors cannot be trained further"
            ) from None
        reason = "it holds code that is not run" if "eights only" in str(error) else first_line(error)
        raise TaskError(
            f"model.weights: {path} cannot be read as a state_dict of tensors only ({reason}): {_WAY_OUT}"
        ) from None


def _is_pickle(path: Path) -> bool:
    """Return whether a file is an object that torch did not write; joblib's may be compressed."""
    names = (b"sklearn", b"joblib", b"numpy_array_wrapper", b"xgboost", b"lightgbm")
    if path.suffix.lower() in {".joblib", ".pickle", ".sav"}:
        return True
    with path.open("rb") as file:
        head = file.read(_PICKLE_BYTES)
    return not zipfile.is_zipfile(path) and any(name in head for name in names)


def _is_safetensors(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            begin = file.read(_LENGTH_BYTES + 1)
    except OSError:
        begin = b""
    return path.suffix == ".safetensors" or begin[_LENGTH_BYTES:] == b"{"


def _entry(content: Any, path: Path) -> tuple[dict[str, torch.Tensor], str]:
    """Return the tensors by name, and the entry that holds them; an empty one where the file does."""
    found, entry = content, ""
    while isinstance(found, Mapping):
        key = next((key for key in ENTRIES if isinstance(found.get(key), Mapping)), None)
        if key is None:
            tensors = {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}
            if tensors:
                return tensors, entry
            break
        found, entry = found[key], f"{entry}.{key}".lstrip(".")
    names = f" with {', '.join(map(str, list(content)[:6]))}" if isinstance(content, Mapping) else ""
    kind = "whole module" if isinstance(content, _Inert) else type(content).__name__
    raise TaskError(f"model.weights must be a state_dict of tensors, but {path} holds a {kind}{names}: {_WAY_OUT}")


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(one, torch.Tensor | Mapping) for one in value.values())


def _without_wrappers(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _prefix(names: Collection[str], own: Collection[str]) -> str:
    """Return the prefix under which a file has most of a model's own names; copies come after what was trained."""
    first = {name for name in own if not name.endswith("num_batches_tracked")}
    matched = dict[str, int]()
    for name in names:
        at = 0
        while at >= 0:  # every part of the name that ends before a dot
            if name[at:] in first:
                matched[name[:at]] = matched.get(name[:at], 0) + 1
            at = name.find(".", at) + 1 or -1
    if not matched or matched.get("", 0) == max(matched.values()):
        return ""
    most = max(matched.values())
    best = [prefix for prefix, count in matched.items() if count == most]
    return min(best, key=lambda prefix: any(word in prefix.casefold() for word in COPIES))
