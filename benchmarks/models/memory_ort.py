"""What a training step takes in a process that has ONNX Runtime and not PyTorch; an arm of `benchmarks.models.memory`.

Its arguments are FOLDER and STEPS; FOLDER holds ``step.onnx``, ``weights.npz`` and ``shape.json``. The peak is the
high-water mark (VmHWM) over the process's rest with libraries, weights and one batch; loading the file counts, as do
both sets of buffers between which the step swaps.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from tuner.ort.training_step import StepSession
from tuner.process_memory import PeakMeter

RATE = 1e-3


def main() -> None:
    """Train on one random batch and print bytes and seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    asked = parser.parse_args()
    weights = dict(np.load(asked.folder / "weights.npz"))
    shape = tuple(json.loads((asked.folder / "shape.json").read_text()))
    value = np.random.default_rng(0).standard_normal(shape, np.float32)
    label = np.zeros(shape[0], np.int64)
    meter = PeakMeter()
    session = StepSession(asked.folder / "step.onnx", weights, len(os.sched_getaffinity(0)))
    seconds = []
    for _ in range(asked.steps):
        started = time.perf_counter()
        session.step(value, label, RATE)
        seconds.append(time.perf_counter() - started)
    if "torch" in sys.modules:
        raise RuntimeError("this process is to do without PyTorch")
    print(json.dumps({"peak_bytes": meter.peak_bytes(), "seconds": seconds[1:]}))


if __name__ == "__main__":
    main()
