"""What runs the steps of a training: PyTorch, a planned step, ONNX Runtime."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tuner.arrays import RowNumbers


class Steps(ABC):
    """Trains on one batch after the other. An engine implements `step`; everything else is optional.

    Attributes:
        norms_train: Whether a batch norm takes its statistics from the batch: one of a single sample has none.
        constant_until: Share of all steps at which a falling learning rate begins to fall; it may change between
            epochs.
    """

    norms_train: bool = False
    constant_until: float = 0.0

    def begin_epoch(self) -> None:  # noqa: B027 - optional
        """Prepare for the steps of an epoch; scoring may have run since the last one."""

    @abstractmethod
    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on the rows of one batch, int64 [n], at a learning rate; return its mean loss."""

    def end_epoch(self) -> None:  # noqa: B027 - optional
        """Follow the steps of an epoch, whole or stopped."""

    def evolve(self, epoch: int, room: int | None) -> Mapping[str, float]:  # noqa: ARG002 - optional
        """Let what trains change after an epoch, counted from 1; return what goes into the epoch's log.

        `room` are the bytes that it may grow by; None for no limit.
        """
        return {}

    def state(self) -> dict[str, Any] | None:
        """Return what the next step starts from in addition to the weights; None where training cannot be resumed."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; a subclass overrides both."""
        raise NotImplementedError("a step that returns a state restores it: override `restore` with `state`")
