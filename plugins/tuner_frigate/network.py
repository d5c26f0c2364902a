"""MobileNetV2 (Sandler et al., 2018) as operators of ONNX, with the weights that torchvision publishes; numpy alone.

A file of weights is read without PyTorch: of the pickle in it, only what tensors are made of is allowed. Norms are
folded into the convolutions before them.
"""

import hashlib
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tuner.errors import TaskError, first_line
from tuner.reading import open_regular

Array = npt.NDArray[Any]
#: What torchvision calls these weights; where they are, and how the hash of the file begins (SHA-256).
FETCHED = "IMAGENET1K_V1"
ADDRESS = "https://download.pytorch.org/models/mobilenet_v2-b0353104.pth"
#: Seconds that a connection may be silent.
SILENT = 30
#: Stages: how much wider a block is inside, channels out, blocks, and the stride of the first.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
#: How pixels from 0 to 1 are normalised, by channel.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EPSILON = 1e-5
CLASSIFIER = "classifier.1"
_TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64, "DoubleStorage": np.float64}
#: How files of PyTorch before version 1.6 begin.
_OLD = [0x1950A86A20F9469CFC6C, 1001]


@dataclass(slots=True)
class Network:
    """A network as operators of ONNX, for one photo.

    Attributes:
        nodes: Kind, inputs, outputs and attributes of each, in the order they run.
        constants: Weights.
        shapes: Shape of every value.
        features: Number of those that the last layer reads.
    """

    nodes: list[tuple[str, tuple[str, ...], tuple[str, ...], dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    features: int = 0

    def add(self, kind: str, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: Any) -> str:
        """Add an operator and return the name of what it makes."""
        name = f"{kind}.{len(self.nodes)}"
        self.nodes.append((kind, inputs, (name,), attributes))
        self.shapes[name] = shape
        return name

    def constant(self, name: str, data: Array) -> str:
        """Add a constant and return its name."""
        self.constants[name] = data
        self.shapes[name] = data.shape
        return name


def mobilenet_v2(weights: Mapping[str, Array], side: int, classes: int) -> Network:
    """Return the network for photos of a side, with zeros as the weights of its last layer.

    Raises:
        TaskError: The weights are those of another network.
    """
    network = Network()
    network.shapes["input"] = (1, 3, side, side)
    network.constant("low", np.array(0.0, np.float32))
    network.constant("high", np.array(6.0, np.float32))
    try:
        value = _convolution(network, weights, "input", "features.0.0", "features.0.1", 2, activated=True)
        row = 1
        for wider, _, blocks, stride in STAGES:
            for block in range(blocks):
                value = _block(network, weights, value, f"features.{row}.conv", wider, stride if block == 0 else 1)
                row += 1
        value = _convolution(network, weights, value, f"features.{row}.0", f"features.{row}.1", 1, activated=True)
    except (KeyError, ValueError) as error:
        raise TaskError(f"--weights has no weights of MobileNetV2 ({first_line(error)}): give {FETCHED}") from None
    network.features = network.shapes[value][1]
    pooled = network.add("GlobalAveragePool", (value,), (1, network.features, 1, 1))
    flat = network.add("Flatten", (pooled,), (1, network.features))
    weight = network.constant("weight", np.zeros((classes, network.features), np.float32))
    bias = network.constant("bias", np.zeros(classes, np.float32))
    network.add("Gemm", (flat, weight, bias), (1, classes), transB=1)
    return network


def _block(network: Network, weights: Mapping[str, Array], given: str, name: str, wider: int, stride: int) -> str:
    """Add a block: wider, depthwise, narrow; the input is added where the shapes are equal."""
    value, at = given, 0
    if wider > 1:
        value = _convolution(network, weights, value, f"{name}.0.0", f"{name}.0.1", 1, activated=True)
        at = 1
    value = _convolution(network, weights, value, f"{name}.{at}.0", f"{name}.{at}.1", stride, activated=True)
    value = _convolution(network, weights, value, f"{name}.{at + 1}", f"{name}.{at + 2}", 1, activated=False)
    if network.shapes[value] == network.shapes[given]:
        value = network.add("Add", (given, value), network.shapes[value])
    return value


def _convolution(
    network: Network, weights: Mapping[str, Array], given: str, name: str, norm: str, stride: int, *, activated: bool
) -> str:
    """Add a convolution with its norm in it; depthwise where each filter reads one channel."""
    own, channels = weights[f"{name}.weight"], network.shapes[given][1]
    scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + EPSILON)
    kernel = network.constant(f"{name}.kernel", (own * scale[:, None, None, None]).astype(np.float32))
    shift = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    bias = network.constant(f"{name}.bias", shift.astype(np.float32))
    if own.ndim != 4:  # noqa: PLR2004 - of images
        raise ValueError(f"{name} reads no images")
    group = channels // own.shape[1]
    if group * own.shape[1] != channels or own.shape[0] % group:
        raise ValueError(f"{name} reads other channels")
    size, edge = own.shape[2], own.shape[2] // 2
    side = (network.shapes[given][2] + 2 * edge - size) // stride + 1
    shape = (1, len(own), side, side)
    settings = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [edge] * 4, "dilations": [1, 1]}
    value = network.add("Conv", (given, kernel, bias), shape, group=group, **settings)
    return network.add("Clip", (value, "low", "high"), shape) if activated else value


def weights_of(weights: str) -> dict[str, Array]:
    """Return weights by name, from a file, or fetched where `FETCHED` is given.

    Raises:
        TaskError: There is no such file, or it has no weights; or they cannot be fetched.
    """
    path = _fetched() if weights == FETCHED else Path(weights)
    try:
        with open_regular(path) as file:
            return _read(file)
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise TaskError(f"--weights {weights}: {reason}: give MobileNetV2's state_dict, or {FETCHED}") from None
    except (
        AttributeError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ) as error:
        raise TaskError(f"--weights {path}: no weights of PyTorch ({first_line(error)}): give {FETCHED}") from None


def _fetched() -> Path:
    """Return the file where PyTorch keeps it, fetched if it is not there."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torch"
    path = Path(os.environ.get("TORCH_HOME", home)) / "hub" / "checkpoints" / ADDRESS.rpartition("/")[2]
    if path.is_file():
        return path
    from urllib.request import urlopen

    try:
        with urlopen(ADDRESS, timeout=SILENT) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise TaskError(f"{ADDRESS} cannot be fetched ({first_line(error)}): give its file by --weights") from None
    if not path.stem.endswith(hashlib.sha256(content).hexdigest()[:8]):
        raise TaskError(f"{ADDRESS} has another content than it should: try again")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.part")
    draft.write_bytes(content)
    draft.replace(path)
    return path


class _Unpickler(pickle.Unpickler):
    """Reads what tensors are made of, and nothing else.

    Args:
        file: The pickle.
        most: Most bytes of a storage.
        members: Contents of storages by their names; None where they follow the pickle.
    """

    def __init__(self, file: BinaryIO, most: int, members: Mapping[str, bytes] | None = None) -> None:
        super().__init__(file, encoding="utf-8")
        self._most, self._members = most, members
        self.storages: dict[str, Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of weights")

    def persistent_load(self, pid: Any) -> Array:
        """Return a storage; in an old file it is filled later."""
        _, kind, key, _, count, *_ = pid
        if kind not in _TYPES.values():
            raise ValueError("a storage of no numbers")
        dtype = np.dtype(kind)
        if not 0 <= count * dtype.itemsize <= self._most:
            raise ValueError("a storage is larger than the file")
        if key not in self.storages:
            members = self._members
            self.storages[key] = np.zeros(count, dtype) if members is None else np.frombuffer(members[key], dtype)
        return self.storages[key]


def _tensor(storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Array:
    """Return a tensor as a view of its storage."""
    dense = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    if any(length > 1 and own != wanted for length, own, wanted in zip(size, stride, dense, strict=True)):
        raise ValueError("a tensor is not stored in order")
    return storage[offset : offset + math.prod(size)].reshape(size)


def _read(file: BinaryIO) -> dict[str, Array]:
    """Return the tensors of a file of PyTorch, of today's format or of that before version 1.6."""
    most = os.fstat(file.fileno()).st_size
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if sum(one.file_size for one in archive.infolist()) > most:
                raise ValueError("its parts are compressed")
            (place,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            root = place.removesuffix("data.pkl") + "data/"
            found = {one.removeprefix(root): archive.read(one) for one in archive.namelist() if one.startswith(root)}
            state = _Unpickler(BytesIO(archive.read(place)), most, found).load()
    else:
        file.seek(0)
        if [_Unpickler(file, most).load() for _ in range(3)][:2] != _OLD:
            raise ValueError("another format")
        reader = _Unpickler(file, most)
        state = reader.load()
        for key in _Unpickler(file, most).load():
            storage = reader.storages[key]
            if int.from_bytes(file.read(8), "little") != len(storage):
                raise ValueError("a storage has another size")
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return {str(name): value for name, value in state.items() if isinstance(value, np.ndarray)}
