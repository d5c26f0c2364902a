"""The engines that compute a frozen prefix: PyTorch in two precisions, and ONNX Runtime in two."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from tuner.arrays import Floats
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.files import cache_folder, private_file
from tuner.store.calibrated import blocks_file

TORCH, BFLOAT, ORT = "torch-fp32", "torch-bf16", "onnxruntime-fp32"
#: How the names of engines begin that compute in int8; see `tuner.backends.torch.features.int8`.
INT8 = "onnxruntime-int8"
#: Takes a batch, returns float32 [n, *shape] of every cut.
PrefixEngine = Callable[[Floats], Sequence[Floats]]


def prefix_engine(model: OpenModel, cuts: Sequence[int], kind: str, threads: int, begin: int = 0) -> PrefixEngine:
    """Return what computes the prefix's outputs at `cuts`, from pixels or from the input of block `begin`."""
    if model.chain is None:
        raise ValueError("a model without cut points has no prefix")
    if kind == ORT or kind.startswith(INT8):
        from tuner.backends.torch.onnx.quantise import part_of
        from tuner.ort.session import Session

        path, names = exported_prefix(model) if kind == ORT else int8_file(model, kind), list(map(cut_name, cuts))
        file = part_of(path, names, cut_name(begin)).SerializeToString() if begin else path
        session = Session(file, threads)
        return lambda batch: session.run(batch, *names)
    part = fast(model.chain.outputs(list(map(model.chain.split_position, cuts)), model.chain.split_position(begin)))

    def run(batch: Floats) -> list[Floats]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=kind == BFLOAT):
            outputs = part(spatial(torch.from_numpy(batch)))
        return [np.ascontiguousarray(output.float().numpy()) for output in outputs]

    return run


def exported_prefix(model: OpenModel) -> Path:
    """Return the prefix as an ONNX file with one output per inner cut, made once per device, model and input shape."""
    path = cache_folder() / "prefix" / f"{model.info.identity}.onnx"
    if not path.exists() and model.chain is not None:
        inner = range(1, model.info.num_blocks)
        part = model.chain.outputs([model.chain.split_position(cut) for cut in inner])
        sample = torch.zeros(2, *model.info.blocks[0].in_shape)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with private_file(path) as draft:
            write_onnx(part.eval(), sample, draft, list(map(cut_name, inner)))
    return path


def int8_file(model: OpenModel, kind: str) -> Path:
    """Return where the prefix of an int8 engine lies, or would lie: its ranges come from samples of a task."""
    return blocks_file(model.info.identity, kind.removeprefix(f"{INT8}-"))


def cut_name(cut: int) -> str:
    """Return the name of a cut among the outputs of an exported prefix."""
    return f"cut{cut}"
