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
        """Train on one batch; return its mean loss.

        Args:
            rows: Its row numbers, int64 [n].
            rate: The learning rate of this step.
        """

    def end_epoch(self) -> None:  # noqa: B027 - optional
        """Follow the steps of an epoch, whole or stopped."""

    def evolve(self, epoch: int, room: int | None) -> Mapping[str, float]:  # noqa: ARG002 - optional
        """Let what trains change between two epochs; return what goes into the epoch's log.

        Args:
            epoch: That ended, counted from 1.
            room: Bytes that it may grow by; None for no limit.
        """
        return {}

    def state(self) -> dict[str, Any] | None:
        """Return what the next step starts from in addition to the weights; None where training cannot be resumed."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; a subclass overrides both.

        Raises:
            NotImplementedError: It overrides `state` alone.
        """
        raise NotImplementedError("a step that returns a state restores it: override `restore` with `state`")
