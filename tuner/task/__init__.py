"""What is personalised: files in, samples out. No tensor library; pydantic only when a task file is read."""

from tuner.targets import LossSettings, TargetScale
from tuner.task.data.audio import log_mel, read_clip
from tuner.task.data.images import decode_image, normalise
from tuner.task.data.recordings import read_npy
from tuner.task.data.samples import ArraySamples, FileSamples, Samples, Subset
from tuner.task.data.signals import Recording, WindowSamples, cut_windows, window_begins
from tuner.task.digits import digits
from tuner.task.file.load import load_task
from tuner.task.partition import stratified_holdout
from tuner.task.scale import standardised
from tuner.task.spec import InputDefaults, InputSpec, ModelSpec, Pretrain
from tuner.task.task import Domain, Task

__all__ = [
    "ArraySamples",
    "Domain",
    "FileSamples",
    "InputDefaults",
    "InputSpec",
    "LossSettings",
    "ModelSpec",
    "Pretrain",
    "Recording",
    "Samples",
    "Subset",
    "TargetScale",
    "Task",
    "WindowSamples",
    "cut_windows",
    "decode_image",
    "digits",
    "load_task",
    "log_mel",
    "normalise",
    "read_clip",
    "read_npy",
    "standardised",
    "stratified_holdout",
    "window_begins",
]
