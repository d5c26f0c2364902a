"""What is personalised: files in, samples out. No tensor library; pydantic only when a task file is read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.targets import LossSettings, TargetScale
    from tuner.task.builtin import digits
    from tuner.task.data.entry import Entry, EntrySource
    from tuner.task.data.images import decode_image
    from tuner.task.data.npy import read_npy
    from tuner.task.data.samples import ArraySamples, FileSamples, Samples, Subset
    from tuner.task.data.signals import Recording, WindowSamples, cut_windows, window_begins
    from tuner.task.file.load import load_task, open_task
    from tuner.task.inputs.base import InputKind
    from tuner.task.partition import stratified_holdout
    from tuner.task.scale import standardised
    from tuner.task.spec import InputDefaults, InputSpec, ModelSpec, Pretrain, normalise
    from tuner.task.task import Domain, Task

__all__ = [
    "ArraySamples",
    "Domain",
    "Entry",
    "EntrySource",
    "FileSamples",
    "InputDefaults",
    "InputKind",
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
    "normalise",
    "open_task",
    "read_npy",
    "standardised",
    "stratified_holdout",
    "window_begins",
]

#: Public names by module.
_NAMES = {
    "tuner.targets": ("LossSettings", "TargetScale"),
    "tuner.task.builtin": ("digits",),
    "tuner.task.data.entry": ("Entry", "EntrySource"),
    "tuner.task.data.images": ("decode_image",),
    "tuner.task.data.npy": ("read_npy",),
    "tuner.task.data.samples": ("ArraySamples", "FileSamples", "Samples", "Subset"),
    "tuner.task.data.signals": ("Recording", "WindowSamples", "cut_windows", "window_begins"),
    "tuner.task.file.load": ("load_task", "open_task"),
    "tuner.task.inputs.base": ("InputKind",),
    "tuner.task.partition": ("stratified_holdout",),
    "tuner.task.scale": ("standardised",),
    "tuner.task.spec": ("InputDefaults", "InputSpec", "ModelSpec", "Pretrain", "normalise"),
    "tuner.task.task": ("Domain", "Task"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __dir__() -> list[str]:
    """Return the public names, those that were not used yet among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a bundle's runtime needs few of these modules."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tuner.task' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
