"""What is personalised: files in, samples out. No tensor library; pydantic only when a task file is read."""

from tuner.task.digits import digits
from tuner.task.images import decode_image, normalise
from tuner.task.load import load_task
from tuner.task.samples import ArraySamples, FileSamples, Samples, Subset
from tuner.task.spec import InputSpec, ModelSpec, Pretrain
from tuner.task.split import stratified_holdout
from tuner.task.task import Domain, Task

__all__ = [
    "ArraySamples",
    "Domain",
    "FileSamples",
    "InputSpec",
    "ModelSpec",
    "Pretrain",
    "Samples",
    "Subset",
    "Task",
    "decode_image",
    "digits",
    "load_task",
    "normalise",
    "stratified_holdout",
]
