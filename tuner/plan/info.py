"""What a plan is about: the model as a chain of blocks, and the task in numbers."""

import math
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

from tuner.errors import PlanError
from tuner.targets import SINGLE_LABEL, LossKind, Targets, targets_of

#: How pydantic reads files: an unknown key is an error.
FORBID: dict[str, Any] = {"extra": "forbid"}
#: Dimensions of a map of an image, per sample: [C, H, W].
MAP_DIMENSIONS = 3
#: Most cuts of a ladder, and the ratio of the costs of two neighbours.
MOST_CUTS, CUT_RATIO = 6, 1.7


class Part:
    """A part of a plan."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = FORBID


@dataclass(frozen=True, slots=True)
class BlockInfo(Part):
    """One block of the chain: the unit that is frozen or trained.

    Attributes:
        name: Module's name in the model (``"features.17"``).
        cut: Graph node whose output enters the block; the store keeps it where the model is cut here.
        in_shape: Shape of that output, per sample.
        flops: FLOPs of the forward pass, per sample; one multiply-accumulate counts two.
        parameters: Number of learnable scalars.
        saved_bytes: Bytes kept for the backward pass, per sample, when the block trains (fp32).
        channels_last: Whether the shape is of tokens ``[T, C]`` or maps ``[H, W, C]``, which are not changed at random.
    """

    name: str
    cut: str
    in_shape: tuple[int, ...]
    flops: int
    parameters: int
    saved_bytes: int
    channels_last: bool = False

    def extends_for(self, operations: Collection[str]) -> bool:
        """Return whether there are random changes, `tuner.augment.operations`, and the input has an extent for them."""
        of_images = "crop" in operations or "flip" in operations
        has_axes = not self.channels_last and (len(self.in_shape) >= MAP_DIMENSIONS or not of_images)
        return bool(operations) and has_axes and math.prod(self.in_shape[1:]) > 1


@dataclass(frozen=True, slots=True)
class Sized(Part):
    """A model at another size of its input than the task's own.

    Attributes:
        size: Side of the square that the model sees, in pixels.
        blocks: Its blocks then; none where it does not take the size.
        refused: Why it does not.
    """

    size: int
    blocks: tuple[BlockInfo, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo(Part):
    """The model as a chain of blocks, without a tensor.

    Attributes:
        name: Factory's name.
        fingerprint: Hash of the graph and of every weight and buffer before training.
        outputs: Rows of the union head.
        blocks: Chain from the input to the head; at least one block.
        note: Reason why only whole-model training is offered; empty where cuts are.
        traced_by: How the blocks were found, such as ``"torch.fx"``; empty where they were not.
        sizes: What it is at other sizes of its input, where it was looked at with these.
    """

    name: str
    fingerprint: str
    outputs: int
    blocks: tuple[BlockInfo, ...]
    note: str = ""
    traced_by: str = ""
    sizes: tuple[Sized, ...] = field(default=(), compare=False)

    @property
    def side(self) -> int:
        """Last axis of the input; of images, their side in pixels."""
        return (self.blocks[0].in_shape or (0,))[-1]

    def takes(self, size: int) -> bool:
        """Return whether the model was looked at with another size of its input, and takes it."""
        return any(one.size == size and one.blocks for one in self.sizes)

    def at(self, size: int) -> "ModelInfo":
        """Return the model as it is at a size of its input; 0 is the task's own."""
        if size in {0, self.side}:
            return self
        blocks = next((one.blocks for one in self.sizes if one.size == size), ())
        if not blocks:
            known = ", ".join(str(one.size) for one in self.sizes if one.blocks)
            raise PlanError(f"plan: size must be one that {self.name} takes ({known or self.side}), got {size}")
        return replace(self, blocks=blocks, sizes=())

    @property
    def num_blocks(self) -> int:
        """Number of blocks in the chain."""
        return len(self.blocks)

    @property
    def depths(self) -> tuple[int, ...]:
        """Numbers of last blocks to train, ascending: three to six, where the network has as many blocks.

        Each tail takes some `CUT_RATIO` times the FLOPs of the one before. The last block alone is left out.
        """
        tails = {blocks: sum(one.flops for one in self.blocks[-blocks:]) for blocks in range(1, self.num_blocks + 1)}
        inner = [blocks for blocks in tails if blocks > 1] or [1]
        wanted = [tails[self.num_blocks] / CUT_RATIO**halvings for halvings in range(MOST_CUTS)]
        near = {min(inner, key=lambda blocks: abs(math.log(max(1, tails[blocks]) / max(1, one)))) for one in wanted}
        return tuple(sorted(near))

    def share(self, blocks: int) -> float:
        """Return the share of the network's FLOPs in its last blocks, in [0, 1]."""
        return self.tail_flops(blocks) / max(1, self.tail_flops(self.num_blocks))

    def tail_flops(self, blocks: int) -> int:
        """Return the FLOPs of one sample's forward pass through the last blocks."""
        return sum(block.flops for block in self.blocks[self.num_blocks - blocks :])

    @property
    def identity(self) -> str:
        """Fingerprint and shape of the input, as in the names of files about frozen blocks."""
        return f"{self.fingerprint}-{'x'.join(map(str, self.blocks[0].in_shape))}"


@dataclass(frozen=True, slots=True)
class TaskInfo(Part):
    """The task in numbers: how many samples of each kind there are.

    Attributes:
        name: Task's name.
        fingerprint: Hash of the task; compared when a run is resumed.
        local_train: Number of local training samples.
        local_val: Number of local validation samples.
        global_per_class: Number of global training samples of each class, or label, that has any.
        global_mixed: Where a sample may have several labels: fractions of each label, from the smallest, and how many
            samples they take, each counted once.
        global_val: Number of global validation samples; 0 for a task without global data.
        noun: Word for the samples (``"images"``).
        augment: Operations that keep a sample's label, as the task lists them (`tuner.augment.operations`).
        labelled: Whether the local samples have labels.
        most_frequent: Share of the most frequent class among the local validation samples: the accuracy of always
            answering with it; 0 where a sample has several labels, or all have the same.
        loss: Name of what a sample's label is, and so what is called accuracy; see `targets`.
    """

    name: str
    fingerprint: str
    local_train: int
    local_val: int
    global_per_class: tuple[int, ...] = ()
    global_val: int = 0
    noun: str = "samples"
    augment: tuple[str, ...] = ()
    labelled: bool = True
    most_frequent: float = 0.0
    loss: LossKind = SINGLE_LABEL.name
    global_mixed: tuple[tuple[float, int], ...] = ()

    @property
    def targets(self) -> Targets:
        """What a sample's label is, with the usual settings."""
        return targets_of(self.loss)

    def mixed_samples(self, fraction: float) -> int:
        """Return how many global training samples a fraction of every class takes, each counted once.

        Where a sample may have several labels, it is interpolated in `global_mixed`.
        """
        if fraction == 0 or not self.global_mixed:
            return sum(per_class_counts(self.global_per_class, fraction))
        at = bisect_left(self.global_mixed, (fraction, 0))
        if at in {0, len(self.global_mixed)}:
            return self.global_mixed[min(at, len(self.global_mixed) - 1)][1]
        (low, fewer), (high, more) = self.global_mixed[at - 1 : at + 1]
        return round(fewer + (more - fewer) * (fraction - low) / (high - low))


@lru_cache(maxsize=256)
def per_class_counts(available: tuple[int, ...], alpha: float) -> tuple[int, ...]:
    """Return how many of each class's samples a fraction in [0, 1] takes: at least one where it is above 0.

    Source: MoIL, Algorithm 1; the rounding is this project's (the thesis leaves it open).
    """
    if alpha == 0:
        return tuple(0 for _ in available)
    return tuple(min(count, max(1, round(alpha * count))) for count in available)


def share_of(count: int, share: float) -> int:
    """Return how many of some samples a share takes: rounded up, so that it is at least one."""
    return min(count, math.ceil(share * count))
