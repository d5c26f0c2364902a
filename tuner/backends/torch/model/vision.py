"""Import torchvision, also where its native operators do not load.

On a processor-only machine the torchvision wheel of the public registry may be built for another torch; its import then
fails because two operators it describes are missing. Registering their schemas makes its models usable.
"""

import importlib
import sys
from types import ModuleType

import torch

_SCHEMA = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[torch.library.Library] = []


def torchvision() -> ModuleType:
    """Return torchvision with `models` imported."""
    if "torchvision" not in sys.modules:
        try:
            importlib.import_module("torchvision.models")
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch leaves it untyped
            for operator in ("nms", "qnms"):
                library.define(_SCHEMA.format(operator))  # type: ignore[no-untyped-call]  # likewise
            _LIBRARIES.append(library)  # the schemas live as long as the library object
    importlib.import_module("torchvision.models")
    return sys.modules["torchvision"]
