"""How alike two tasks are, in numbers that say nothing of whose they are."""

import hashlib
import math
import platform
from dataclasses import dataclass
from typing import Any, ClassVar

from tuner.machine.control_group import usable_processors
from tuner.plan.info import FORBID, ModelInfo, TaskInfo
from tuner.targets import LossKind

#: By how much a ratio of ten lowers the likeness, as an exponent: of samples, of classes, of the model's FLOPs.
SAMPLES, CLASSES, FLOPS = 0.5, 0.5, 0.5
#: The same of what differs or does not.
OTHER_LOSS, OTHER_SAMPLES, OTHER_FAMILY, OTHER_DEVICE, OTHER_DATA = 2.0, 0.5, 0.5, 0.1, 1.0


@dataclass(frozen=True, slots=True)
class TaskKind:
    """A task, a model and a device in numbers: no name, no path and no sample of anybody.

    Attributes:
        samples: Word for the samples (``"images"``).
        loss: What a sample has: one label, several, or targets.
        local: Number of local training samples.
        old: Number of global training samples; 0 for none.
        classes: Outputs of the model, the new ones included.
        new_classes: Those of them that the given model did not know.
        blocks: Blocks of the model.
        flops: FLOPs of its forward pass, per sample.
        parameters: Its learnable scalars.
        family: Hash of the blocks' numbers of parameters, without the last: equal for the same network with any
            weights, any head and any size of images.
        device: Kind of the device, such as ``"aarch64, 4 cores"``; empty where it is not known.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {**FORBID, "allow_inf_nan": False}
    samples: str
    loss: LossKind
    local: int
    old: int
    classes: int
    new_classes: int
    blocks: int
    flops: int
    parameters: int
    family: str = ""
    device: str = ""


def kind_of_task(model: ModelInfo, task: TaskInfo, device: str) -> TaskKind:
    """Return a task in numbers."""
    shape = repr([block.parameters for block in model.blocks[:-1]])
    return TaskKind(
        samples=task.noun,
        loss=task.loss,
        local=task.local_train,
        old=task.mixed_samples(1.0),
        classes=model.outputs,
        new_classes=max(0, model.outputs - len(task.global_per_class)) if task.global_per_class else 0,
        blocks=model.num_blocks,
        flops=sum(block.flops for block in model.blocks),
        parameters=sum(block.parameters for block in model.blocks),
        family=hashlib.blake2b(shape.encode(), digest_size=4).hexdigest() if model.num_blocks > 1 else "",
        device=device,
    )


def device_kind(machine: str = "", cores: int = 0) -> str:
    """Return a device's kind: its processor's family, and how many cores a process may use; of this one by default."""
    number = cores or usable_processors()
    return f"{machine or platform.machine()}, {number} core{'' if number == 1 else 's'}"


def likeness(one: TaskKind, other: TaskKind) -> float:
    """Return how alike two tasks are: 1 for equal ones, towards 0 the more they differ."""
    apart = (
        SAMPLES * _decades(one.local, other.local)
        + CLASSES * (_decades(one.classes, other.classes) + _decades(1 + one.new_classes, 1 + other.new_classes))
        + FLOPS * _decades(one.flops, other.flops)
        + OTHER_LOSS * (one.loss != other.loss)
        + OTHER_SAMPLES * (one.samples != other.samples)
        + OTHER_FAMILY * (one.family != other.family)
        + OTHER_DATA * (bool(one.old) != bool(other.old))
        + OTHER_DEVICE * bool(one.device and other.device and one.device != other.device)
    )
    return math.exp(-apart)


def _decades(one: int, other: int) -> float:
    return abs(math.log10(max(1, one) / max(1, other)))
