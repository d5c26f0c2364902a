"""Where this machine keeps networks and their weights: folders of the user, and the caches of the libraries."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tuner.reading import expanded, kind_of
from tuner.task.file.variables import DATA_VARIABLE, default_data
from tuner.task.spec import LIBRARIES

WEIGHT_FILES = (".pth", ".pt", ".safetensors")
#: A function of torchvision that builds a classifier.
BUILDER = re.compile(r"^def ([a-z]\w*)\(\s*\*,\s*weights", re.MULTILINE)
#: Files of weights that hubs have.
HUB_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "timm_model.safetensors")
#: The line of a model card that names its licence.
LICENCE = re.compile(r"^license:\s*([\w.+-]+)\s*$", re.MULTILINE)
#: Sides of pictures that are proposed, in pixels, the usual one first; and as many candidates at most.
SIDES, MOST_PROPOSED = (160, 128, 224), 8
#: Beginning of a model card that is looked through for it.
CARD_LETTERS = 4000


@dataclass(frozen=True, slots=True)
class Network:
    """A network that is on this machine.

    Attributes:
        candidate: What names it in a task file; empty where nothing says which network a file of weights is of.
        file: Its weights, or the folder that they are in.
        bytes: Their size.
        licence: As the model card names it; "-" where none does.
    """

    candidate: str
    file: Path
    bytes: int
    licence: str = "-"


def folders(near: Path) -> Iterator[Path]:
    """Yield the folders that may hold weights: next to a task file, of the shared data, and torchvision's own."""
    yield near.absolute() if kind_of(near) == "folder" else near.absolute().parent
    data = os.environ.get(DATA_VARIABLE) or default_data(Path.cwd()) or default_data(near.absolute())
    if data is not None:
        yield Path(data, "models")
    home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"), "torch")
    yield Path(home) / "hub" / "checkpoints"


def weights_here(name: str, near: Path) -> Path | None:
    """Return the file of weights of a network of torchvision; None where none is on this machine."""
    for folder in folders(near):
        for file in _files(folder):
            if file.suffix in WEIGHT_FILES and _network_of(file) == name:
                return file
    return None


def networks(near: Path, folder: Path | None = None) -> list[Network]:
    """Return the networks that can be loaded without a network connection; nothing is loaded, and nothing fetched.

    Args:
        near: A task file, or a folder.
        folder: A further folder, which comes first.
    """
    found = dict[Path, Network]()
    seen = dict.fromkeys(one.resolve() for one in (*([folder] if folder else []), *folders(near)))
    own = {one.resolve() for one in [*folders(near)][1:]}  # where `weights_here` looks, whatever the task file
    for one in seen:
        for file in _files(one):
            name = _network_of(file)
            if file.suffix == ".onnx":
                found[file] = Network(str(file), file, file.stat().st_size)
            elif file.suffix in WEIGHT_FILES:
                factory = f"torchvision.models:{name}" if one in own else f"torchvision.models:{name}={file}"
                found[file] = Network(factory if name else "", file, file.stat().st_size)
        for place in sorted(one.glob("*/config.json")) if kind_of(one) == "folder" else ():
            if network := _of_hub(f"hf:{place.parent}", place.parent):
                found[place.parent] = network
    for network in _cached():
        found[network.file] = network
    return list(found.values())


def proposed(near: Path) -> list[str]:
    """Return candidates for a task of photos: the published networks that are on this machine, at several sizes.

    Args:
        near: The task file.
    """
    found = list[str]()
    for network in networks(near):
        library, _, name = network.candidate.partition(":")
        if library in LIBRARIES:  # it says at which size
            found.append(network.candidate)
        elif network.candidate and "=" not in name and network.file.suffix in WEIGHT_FILES:
            found += [f"{name}@{side}" for side in SIDES]
    return list(dict.fromkeys(found))[:MOST_PROPOSED]


def _cached() -> Iterator[Network]:
    """Yield the networks of timm and Hugging Face that the hub's cache holds with their weights."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache"), "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub"))
    for place in sorted(hub.glob("models--*--*")) if kind_of(hub) == "folder" else ():
        owner, name = place.name.removeprefix("models--").split("--", 1)
        text = f"timm:{name}" if owner == "timm" else f"hf:{owner}/{name}"
        for snapshot in sorted(place.glob("snapshots/*"), key=lambda one: one.stat().st_mtime)[-1:]:
            if network := _of_hub(text, snapshot):
                yield network


def _of_hub(text: str, folder: Path) -> Network | None:
    sizes = [file.stat().st_size for name in HUB_WEIGHTS if (file := folder / name).is_file()]
    card = folder / "README.md"
    letters = card.read_text(encoding="utf-8", errors="replace")[:CARD_LETTERS] if card.is_file() else ""
    licence = LICENCE.search(letters)
    return Network(text, folder, max(sizes), licence[1] if licence else "-") if sizes else None


def _files(folder: Path) -> list[Path]:
    if kind_of(folder) != "folder":
        return []
    return [file for file in sorted(folder.iterdir()) if file.suffix in (*WEIGHT_FILES, ".onnx") and file.is_file()]


def _network_of(file: Path) -> str:
    """Return the longest name of a network of torchvision that a file's name begins with; empty without one."""
    fitting = (name for name in _library() if re.match(rf"{name}[_.-]", file.name))
    return max(fitting, key=len, default="")


@cache
def _library() -> frozenset[str]:
    """Return the names of torchvision's classifiers, read from its source: importing it takes seconds."""
    spec = find_spec("torchvision")
    sources = (
        path
        for place in (spec and spec.submodule_search_locations) or ()
        for path in Path(place, "models").glob("*.py")
    )
    return frozenset(name for path in sources for name in BUILDER.findall(path.read_text(encoding="utf-8")))
