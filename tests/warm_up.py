"""What is imported once, in the process that others are forked from: see `tests.warm`."""

import gc
import importlib
import tempfile
from pathlib import Path

import PIL.Image
import torch

import tests.killed  # noqa: F401 - what forked processes run
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch import compiler
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.distribution import entry_points

#: Modules that opening a task imports, or a trial.
LATER = (
    *("numpy.ma", "platformdirs.unix", "tomllib", "torch.utils.serialization.config", "zoneinfo"),
    *("tuner.cli.app", "tuner.ridge.personal", "tuner.task.file.schema", "tuner.task.inputs.images"),
    *("tuner_exits.torch", "tuner_onnx_steps.torch.write", "tuner_planned.torch"),
)
for library in (*OrtBackend.preload, *LATER, *(point.module for point in entry_points("tuner"))):
    importlib.import_module(library)
PIL.Image.init()
compiler.load()
importlib.import_module("tqdm").tqdm.monitor_interval = 0  # or an export starts a thread, which a fork would not have
state = torch.get_rng_state()
with tempfile.TemporaryDirectory() as folder:  # the first export imports and builds what the others need too
    write_onnx(torch.nn.Linear(1, 1), torch.zeros(2, 1), Path(folder) / "model.onnx", ["logits"])
torch.set_rng_state(state)
gc.collect()
gc.freeze()
threads = len(list(Path("/proc/self/task").iterdir()))
if threads > 1:
    raise SystemExit(f"the process to fork from has {threads} threads: a fork has one of them")
