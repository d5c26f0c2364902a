"""What the runtime costs beside bare ONNX Runtime: milliseconds a prediction, and resident memory.

MobileNetV2 for 160 pixels and 200 classes, with weights as they are drawn: time and memory do not depend on them. In
one piece, and as a chain of five segments with an exit after f4, f8, f11 and f13 (four of PersEPhonEE's six places).
Thresholds are just below 1, so that every exit is asked and nothing leaves: a prediction pays for all of it. Bare ONNX
Runtime runs the same files on the same normalised pixels. One thread; arms take turns, in a process that only predicts.
"""

import json
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, median_interval
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.bundle.format import FILE, MODEL, Bundle, file_hash
from tuner.bundle.info import FORMAT

SIZE, CLASSES = 160, 200
AFTER = (5, 9, 12, 14)  # exits after f4, f8, f11, f13: where the next segment begins
MOST_MILLISECONDS = {"one piece": 0.1, "chain": 0.2}
MOST_MEMORY = 1.15
BARE = """
import json, sys
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
sessions = [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in sys.argv[1:]]
for _ in range(20):
    carried = np.zeros((1, 3, 160, 160), np.float32)
    for session in sessions:
        carried = session.run(None, {"input": carried})[0]
"""
OURS = """
import sys
import numpy as np
from tuner.runtime import Personaliser
model = Personaliser(sys.argv[1], threads=1)
for _ in range(20):
    model.predict(np.zeros((3, 160, 160), np.uint8))
"""
RESIDENT = """
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) * 1024)
"""


class Segment(nn.Module):
    """Blocks, then an exit: the map that goes on, and logits."""

    def __init__(self, blocks: nn.Module, channels: int, *, last: bool) -> None:
        super().__init__()
        self.blocks, self.head, self.last = blocks, nn.Linear(channels, CLASSES), last

    def forward(self, batch: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return (features, logits), or logits alone at the end."""
        features = self.blocks(batch)
        logits: torch.Tensor = self.head(features.mean((2, 3)))
        return logits if self.last else (features, logits)


def bundles(folder: Path) -> dict[str, Path]:
    """Write the model in one piece and as a chain."""
    features = torchvision().models.mobilenet_v2(num_classes=CLASSES).eval().features
    edges = (0, *AFTER, len(features))
    carried, parts = torch.zeros(2, 3, SIZE, SIZE), []
    for begin, end in pairwise(edges):
        with torch.inference_mode():
            following = features[begin:end](carried)
        parts.append((Segment(features[begin:end], following.shape[1], last=end == edges[-1]).eval(), carried))
        carried = following
    whole = Segment(features, carried.shape[1], last=True).eval()
    return {"one piece": written(folder / "whole", [(whole, parts[0][1])]), "chain": written(folder / "chain", parts)}


def written(folder: Path, parts: list[tuple[Segment, torch.Tensor]]) -> Path:
    """Write a bundle of segments."""
    names = [f"segments/{index}.onnx" for index in range(len(parts))] if len(parts) > 1 else [MODEL]
    for name, (segment, sample) in zip(names, parts, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_onnx(segment, sample, folder / name, ["logits"] if segment.last else ["features", "logits"])
    content = {
        "format": FORMAT, "name": "mobilenet_v2", "labels": [str(label) for label in range(CLASSES)],
        "input": {"kind": "images", "size": SIZE, "resize": SIZE, "mean": [0.485, 0.456, 0.406], "std": [0.229] * 3},
        "input_shape": [3, SIZE, SIZE], "loss": "single-label",
        "files": {name: file_hash(folder / name) for name in names},
    }  # fmt: skip
    if len(parts) > 1:
        shares = [(index + 1) / len(parts) for index in range(len(parts))]
        stay = {"thresholds": [0.9999] * (len(parts) - 1), "temperatures": [1.0] * len(parts), "tolerance": 0.01}
        content["exits"] = {"segments": names, "shares": shares, **stay}
    (folder / FILE).write_text(json.dumps(content))
    return folder


def resident(code: str, *words: object) -> int:
    """Return the resident bytes of a process of its own, after its predictions."""
    command = [sys.executable, "-c", code + RESIDENT, *map(str, words)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measured(name: str, folder: Path, repetitions: int) -> tuple[Row, list[Claim]]:
    """Compare one bundle with bare ONNX Runtime."""
    bundle = Bundle.open(folder)
    command = [sys.executable, "-m", "benchmarks.models.predictions", str(folder), str(repetitions)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if not found["alike"]:
        raise SystemExit(f"{name}: the runtime and bare ONNX Runtime disagree")
    seconds = found["seconds"]
    excess = [1e3 * (one - other) for one, other in zip(seconds["ours"], seconds["bare"], strict=True)]
    least = 1e3 * (min(seconds["ours"]) - min(seconds["bare"]))
    own = [resident(OURS, folder) for _ in range(3)]
    theirs = [resident(BARE, *bundle.models) for _ in range(3)]
    memory, high = max(own) / min(theirs), median_interval(excess)[1]
    most = MOST_MILLISECONDS[name]
    row = {
        "model": name, "segments": len(bundle.models), "ours ms": 1e3 * median(seconds["ours"]),
        "bare ms": 1e3 * median(seconds["bare"]), "overhead ms": median(excess), "of minima ms": least,
        "ours MB": median(own) / 1e6, "bare MB": median(theirs) / 1e6,
    }  # fmt: skip
    return row, [
        Claim(
            f"{name}: a prediction costs at most {most} ms more than bare ONNX Runtime",
            f"the bound, {most} ms",
            f"{median(excess):.3f} ms, at most {high:.3f} ms (95 %, median of paired differences; minima {least:.3f})",
            high <= most,
        ),
        Claim(f"{name}: resident memory is at most {MOST_MEMORY} × bare ONNX Runtime's",
              f"the bound, {MOST_MEMORY} ×",
              f"{memory:.2f} × (the most of three processes over the least of three)", memory <= MOST_MEMORY),
    ]  # fmt: skip


def main() -> None:
    """Measure both bundles."""
    asked = benchmark_parser(__doc__).parse_args()
    rows, claims = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, bundle in bundles(Path(folder)).items():
            row, found = measured(name, bundle, 100 if asked.quick else 1000)
            rows.append(row)
            claims += found
    finish("runtime", rows, claims, asked.json)


if __name__ == "__main__":
    main()
