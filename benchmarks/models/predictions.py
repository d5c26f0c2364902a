"""Predictions of a bundle and of bare ONNX Runtime in turn, in a process that only predicts, as on a device.

Its arguments are BUNDLE and N; it prints N seconds of each arm as JSON, and whether they answer alike.
In a process that has made a model with PyTorch, either arm takes longer, and the one with more Python more so.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import onnxruntime

from benchmarks.lib.report import interleave
from tuner.bundle.format import Bundle
from tuner.runtime import Personaliser
from tuner.task import normalise

WARMUP = 20


def bare(bundle: Bundle) -> Callable[[np.ndarray], int]:
    """Return a prediction by ONNX Runtime alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in bundle.models
    ]

    def predict(sample: np.ndarray) -> int:
        carried = normalise(sample[None], bundle.input)
        for session in sessions:
            outputs = session.run(None, {"input": carried})
            carried = outputs[0]
        return int(outputs[-1].argmax())

    return predict


def main() -> None:
    """Time and print."""
    folder, repetitions = sys.argv[1], int(sys.argv[2])
    model = Personaliser(folder, threads=1)
    alone = bare(model.bundle)
    sample = np.random.default_rng(0).integers(0, 255, model.bundle.input_shape, np.uint8)
    alike = model.predict(sample).label == str(alone(sample))
    arms = {"ours": lambda: model.predict(sample), "bare": lambda: alone(sample)}
    print(json.dumps({"alike": alike, "seconds": interleave(arms, repetitions, WARMUP)}))


if __name__ == "__main__":
    main()
