"""Make torchvision importable, also where its native operators do not load.

On a processor-only machine the torchvision wheel of the public registry may be built for another torch; its import then
fails because two operators it describes are missing. Registering their schemas makes its models usable, whoever imports
them: a factory, timm or transformers.
"""

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch

_SCHEMA = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[torch.library.Library] = []


def declare_operators() -> None:
    """Register the schemas of torchvision's operators where its native ones do not load; imports no torchvision."""
    installed = find_spec("torchvision")
    if hasattr(torch.ops.torchvision, "nms") or installed is None or installed.origin is None:
        return
    for native in Path(installed.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(native)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        except OSError:
            continue
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for operator in ("nms", "qnms"):
        library.define(_SCHEMA.format(operator))  # type: ignore[no-untyped-call]  # likewise
    _LIBRARIES.append(library)  # the schemas live as long as the library object


def torchvision() -> ModuleType:
    """Return torchvision with `models` imported."""
    declare_operators()
    importlib.import_module("torchvision.models")
    return importlib.import_module("torchvision")
