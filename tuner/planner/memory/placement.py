"""Places of a training step's tensors in one pool of memory.

Every planner gives each tensor an offset so that no two tensors that are alive in the same step overlap. NNTrainer's
printed Algorithm 2 is not among them: it tests neither size nor occupancy, and so overlaps live tensors. `v1` is the
planner NNTrainer shipped when the paper was written, `first_fit` its third version, `by_size` is Pisarchyk and Lee's
"greedy by size" (arXiv 2001.03288, section 5.2).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Planner = Callable[[Sequence["Tensor"]], "Placement"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Size and lifetime of a tensor.

    Attributes:
        name: Unique name within the step.
        nbytes: Size in bytes.
        first: First execution step that writes it.
        last: Last execution step that reads it; the tensor is alive in `first` to `last`, both included.
        kind: Purpose: ``input``, ``label``, ``output``, ``activation``, ``saved``, ``gradient``, ``derivative``,
            ``weight``, ``state``, ``library`` or ``scratch``.
    """

    name: str
    nbytes: int
    first: int
    last: int
    kind: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of all tensors in one pool.

    Attributes:
        offsets: First byte of each tensor, by name.
        pool_bytes: Size of the pool in bytes.
    """

    offsets: Mapping[str, int]
    pool_bytes: int


def basic(tensors: Sequence[Tensor]) -> Placement:
    """Give every tensor memory of its own."""
    placed: list[tuple[Tensor, int]] = []
    top = 0
    for tensor in tensors:
        placed.append((tensor, top))
        top += tensor.nbytes
    return _placement(placed)


def v1(tensors: Sequence[Tensor]) -> Placement:
    """Stack tensors by their first step, as NNTrainer's optimized_v1_planner does.

    Expired tensors leave the stack from its top; inside the stack, a tensor takes an expired one's slot only if the
    sizes are equal. Of tensors that begin together the longest-lived comes first, as in the paper; the shipped code
    has the reverse order, which gives larger pools.
    """
    placed: list[tuple[Tensor, int]] = []
    stack: list[tuple[Tensor, int]] = []
    for tensor in _by_start(tensors):
        while stack and stack[-1][0].last < tensor.first:
            stack.pop()
        free = (at for at in range(len(stack) - 1, -1, -1) if _fits(stack[at][0], tensor))
        at = next(free, None)
        if at is not None:
            stack[at] = (tensor, stack[at][1])
        else:
            offset = stack[-1][0].nbytes + stack[-1][1] if stack else 0
            stack.append((tensor, offset))
            at = -1
        placed.append(stack[at])
    return _placement(placed)


def first_fit(tensors: Sequence[Tensor]) -> Placement:
    """Give tensors, by their first step, the lowest gap between live ones that is large enough."""
    return _lowest(_by_start(tensors))


def by_size(tensors: Sequence[Tensor]) -> Placement:
    """Give tensors, largest first, the lowest offset at which they overlap none that lives at the same time."""
    return _lowest(sorted(tensors, key=lambda tensor: (-tensor.nbytes, tensor.first, -tensor.last)))


#: Every planner, by name.
PLANNERS: Mapping[str, Planner] = {"basic": basic, "v1": v1, "first_fit": first_fit, "by_size": by_size}


def smallest(tensors: Sequence[Tensor]) -> tuple[str, Placement]:
    """Return the planner with the smallest pool, and its placement; of equals the planner with the simplest rule."""
    placements = {name: planner(tensors) for name, planner in PLANNERS.items()}
    best = min(placements, key=lambda name: placements[name].pool_bytes)
    return best, placements[best]


def live_bytes(tensors: Sequence[Tensor]) -> list[int]:
    """Return the bytes alive in every step, from step 0 to the last."""
    changes = [0] * (max((tensor.last for tensor in tensors), default=-1) + 2)
    for tensor in tensors:
        changes[tensor.first] += tensor.nbytes
        changes[tensor.last + 1] -= tensor.nbytes
    live, total = [], 0
    for change in changes[:-1]:
        total += change
        live.append(total)
    return live


def max_live(tensors: Sequence[Tensor]) -> int:
    """Return the most bytes alive in any step: no pool can be smaller."""
    return max(live_bytes(tensors), default=0)


def peak_step(tensors: Sequence[Tensor]) -> int:
    """Return the first step in which the most bytes are alive; 0 where there are no tensors."""
    live = live_bytes(tensors)
    return live.index(max(live)) if live else 0


def largest_at(tensors: Sequence[Tensor], step: int, count: int = 10) -> list[Tensor]:
    """Return the largest tensors alive in a step, largest first."""
    alive = [tensor for tensor in tensors if tensor.first <= step <= tensor.last]
    return sorted(alive, key=lambda tensor: -tensor.nbytes)[:count]


def _by_start(tensors: Sequence[Tensor]) -> list[Tensor]:
    return sorted(tensors, key=lambda tensor: (tensor.first, -tensor.last))


def _fits(expired: Tensor, tensor: Tensor) -> bool:
    return expired.last < tensor.first and expired.nbytes == tensor.nbytes


def _lowest(ordered: Iterable[Tensor]) -> Placement:
    placed: list[tuple[Tensor, int]] = []
    for tensor in ordered:
        occupied = sorted(
            (offset, offset + other.nbytes)
            for other, offset in placed
            if other.first <= tensor.last and tensor.first <= other.last
        )
        low = 0
        for begin, end in occupied:
            if begin - low >= tensor.nbytes:
                break
            low = max(low, end)
        placed.append((tensor, low))
    return _placement(placed)


def _placement(placed: Sequence[tuple[Tensor, int]]) -> Placement:
    return Placement(
        {tensor.name: offset for tensor, offset in placed},
        max((offset + tensor.nbytes for tensor, offset in placed), default=0),
    )
