"""First and last use of every storage of a step's code."""

from typing import Any

from torch import fx

from tuner.backends.torch.planned.bound_step import HELD
from tuner.backends.torch.planned.library_memory import LibraryMemory, signature
from tuner.backends.torch.planned.nodes import bytes_of, is_item
from tuner.backends.torch.planned.schedule import Item, Schedule, Update
from tuner.planner.memory.placement import Tensor, max_live
from tuner.process_memory import KEPT_BYTES, MAPPED_BESIDE_KEPT


class Spans:
    """First and last use of every storage, collected line by line.

    Args:
        plan: The step's lines.
    """

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._end = len(plan.items) - 1
        self._loss = max(index for index, item in enumerate(plan.items) if item is plan.loss or _gives(item, plan.loss))
        self._first: dict[fx.Node, int] = {}
        self._last: dict[fx.Node, int] = {}
        self._gradients: set[fx.Node] = set()
        self._scratch: list[Tensor] = []
        self._calls: set[Any] = set()

    def add_result(self, owner: fx.Node, index: int) -> None:
        """Note that a line writes to a storage."""
        self._first.setdefault(owner, index)
        self._last[owner] = max(index, self._last.get(owner, 0))

    def add_use(self, owner: fx.Node, index: int) -> None:
        """Note that a line reads a storage."""
        self._last[owner] = max(index, self._last.get(owner, 0))
        if isinstance(self._plan.items[index], Update):
            self._gradients.add(owner)

    def add_scratch(self, index: int, name: str, nbytes: int) -> None:
        """Note what a line takes while it runs."""
        if nbytes:
            self._scratch.append(Tensor(f"{name}.scratch", nbytes, index, index, "scratch"))

    def add_library(self, index: int, node: fx.Node, memory: LibraryMemory) -> None:
        """Note what the library takes for an operator."""
        self.add_scratch(index, node.name, memory.scratch)
        call = signature(node)
        if memory.resident and call not in self._calls:
            self._calls.add(call)
            self._scratch.append(Tensor(f"{node.name}.library", memory.resident, 0, self._end, "library"))

    def tensors(self, loss: fx.Node) -> tuple[Tensor, ...]:
        """Return every storage with the lines between which it is alive.

        Args:
            loss: Node whose storage the loss lies in.
        """
        held = tuple(
            Tensor(name, bytes_of(node), 0, self._end, HELD.get(self._plan.kinds[name], "input"))
            for node, name in self._plan.ports.items()
        )
        results = tuple(
            Tensor(
                node.name,
                bytes_of(node),
                first,
                self._end if node is loss else self._last[node],
                self._kind(node, loss),
            )
            for node, first in self._first.items()
            if node.op != "placeholder" and bytes_of(node) and not node.meta.get("unwritten")
        )
        small = [tensor for tensor in (*results, *self._scratch) if tensor.nbytes < MAPPED_BESIDE_KEPT]
        freed = Tensor("freed", min(KEPT_BYTES, max_live(small)), 0, self._end, "library")
        return (*held, *results, *self._scratch, freed)

    def _kind(self, node: fx.Node, loss: fx.Node) -> str:
        if node is loss:
            return "output"
        if node.meta.get("again"):
            return "again"
        if self._first[node] <= self._loss:
            return "saved" if self._last[node] > self._loss else "activation"
        return "gradient" if node in self._gradients else "derivative"


def _gives(item: Item, node: fx.Node) -> bool:
    return isinstance(item, fx.Node) and node in item.users and is_item(node)
