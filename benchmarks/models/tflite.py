"""Which networks can be written as TFLite: those of ``benchmarks.models``, with random weights, in float32 and in int8.

Each is opened as a task opens it and written as ONNX; LiteRT's outputs are then compared with ONNX Runtime's on noise.
With random weights, outputs hardly depend on the input, so int8 is shown to be written and to run; what it costs is
measured by ``tuner export --tflite int8`` with trained weights. What was measured is kept in a file: a call that ends
early, by ``--time``, is continued by the next. ``--again`` measures those again that were refused.
"""

import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.models.__main__ import CLASSES, networks, write_file
from tuner.arrays import Floats
from tuner.backends.torch.model.graph.layout import fast
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.model.vision import declare_operators
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.onnx.quantise import part_of
from tuner.errors import BundleError, first_line
from tuner.ort.parity import TOLERANCE, largest_difference
from tuner.ort.session import LOGITS, Session
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task
from tuner_tflite.file import to_bytes
from tuner_tflite.graph import read_graph
from tuner_tflite.interpreter import Interpreter
from tuner_tflite.quantise import calibrated, quantised
from tuner_tflite.write import float_model, interface

SAMPLES, WANTED, QUICK = 4, 40, 5


def onnx_file(spec: ModelSpec, noise: Floats, path: Path) -> Floats:
    """Write a network as a bundle's model is written; return the samples as it takes them."""
    if spec.source is not None and spec.is_file:
        write_file(Path(spec.source[1]))
    samples = ArraySamples(noise, np.arange(SAMPLES) % (CLASSES + 1), InputSpec("arrays"))
    labels = tuple(f"class {row}" for row in range(CLASSES + 1))
    rows, domain = tuple(range(CLASSES + 1)), Domain(samples, samples)
    task = Task("t", spec, InputSpec("arrays"), "single-label", domain, None, labels, rows[:-1], rows)
    loaded, batch = load(task), task.batch(samples, range(SAMPLES))
    # in two parts, as an export does it: the traced graphs can be written where the model's own code cannot
    cut = loaded.info.num_blocks // 2
    parts = [loaded.prefix(cut), loaded.tail(cut)] if cut else [loaded.tail(0)]
    module = nn.Sequential(*(fast(part) if isinstance(part, fx.GraphModule) else part for part in parts))
    write_onnx(module.eval(), torch.from_numpy(batch[:2]), path, [LOGITS])
    return batch


def measured(spec: ModelSpec, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return how far a network's file is from its ONNX model, relative to the largest output, or why there is none."""
    noise = np.random.default_rng(0).normal(size=(SAMPLES, *shape)).astype(np.float32)
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            noise = onnx_file(spec, noise, path)
            model = part_of(path, [LOGITS])
            truth = Session(path, 1).logits(noise)
            face = interface("arrays", (), (), shape[0], "")
            begun = time.perf_counter()
            written = float_model(read_graph(model, LOGITS, noise[:1]), face)
            content = to_bytes(written, "float32")
            row["seconds"] = time.perf_counter() - begun
            row["float32"] = largest_difference(Interpreter(content).answers(noise), truth)
            ranges = calibrated(written, content, [noise], len(noise), pixels=False)
            small = quantised(written, ranges, "int8")
            row["in float32"] = sum(small.tensors[one.output].dtype == "float32" for one in small.operators)
            row["operators"] = len(small.operators)
            row["int8"] = largest_difference(Interpreter(to_bytes(small, "int8")).answers(noise), truth)
        except (BundleError, RuntimeError, ValueError) as error:
            row["error"] = first_line(error)
    return row


def main() -> None:
    """Measure what the file does not have yet, and print the table."""
    parser = benchmark_parser(__doc__, f"the first {QUICK} networks only")
    parser.add_argument("--time", type=float, default=3600.0, help="seconds after which no further network is begun")
    parser.add_argument("--only", default="", help="networks whose names hold this")
    parser.add_argument("--again", action="store_true", help="measures again what was refused")
    parser.add_argument("--file", type=Path, default=Path("build/tflite.json"), help="keeps what was measured")
    asked = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")  # of the exporter
    declare_operators()
    wanted = [(name, one) for name, one in networks().items() if asked.only in name][: QUICK if asked.quick else None]
    kept = json.loads(asked.file.read_text()) if asked.file.exists() else {}
    kept = {name: row for name, row in kept.items() if not (asked.again and "error" in row)}
    end = time.monotonic() + asked.time
    for name, (spec, shape) in wanted:
        if name not in kept and time.monotonic() < end:
            kept[name] = measured(spec, shape)
            print(name, kept[name], flush=True)
            asked.file.parent.mkdir(parents=True, exist_ok=True)
            asked.file.write_text(json.dumps(kept, indent=1))
    rows: list[Row] = [{"network": name, **kept[name]} for name, _ in wanted if name in kept]
    finish("tflite", rows, claims(rows, len(wanted)), asked.json)


def claims(rows: list[Row], wanted: int) -> list[Claim]:
    """Return what is claimed of the networks that were measured."""
    right = [row for row in rows if float(str(row.get("float32", "nan"))) <= TOLERANCE]
    small = [row for row in right if "int8" in row]
    whole = [row for row in small if row["in float32"] == 0]
    least = min(WANTED, wanted)
    counts = f"{len(right)} of {len(rows)} in float32, {len(small)} in int8, {len(whole)} of these without a float"
    claim = f"at least {least} of {wanted} networks are written in float32 and in int8"
    return [Claim(claim, "none: no converter runs here", counts, min(len(right), len(small)) >= least)]


if __name__ == "__main__":
    main()
