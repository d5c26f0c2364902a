"""A traced step as code that runs in the planned order and stays at the planned peak.

The code is one function: an operator a line, `del` after the last use, results written over operands that die. What
the next step replaces is overwritten where it lies, by a fused kernel or piece by piece, so that an update needs no
memory of its own.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tuner.backends.torch.step.traced import Step
from tuner.machine.process_memory import KEPT_BYTES, MAPPED_BESIDE_KEPT
from tuner.planner.memory.placement import Tensor, max_live
from tuner_planned.torch.bound_step import HELD, Program
from tuner_planned.torch.fused import fused, gradient_of, laid_alike
from tuner_planned.torch.library_memory import Library, LibraryMemory, nothing, signature
from tuner_planned.torch.nodes import base, bytes_of, is_item, is_pointwise, value_of
from tuner_planned.torch.schedule import Item, Schedule, Update, operands, schedule

#: Elements of the pieces in which an update runs: a few of them fit into a core's own cache.
PIECE = 32_768
_TEMPORARIES = 4  # pieces that an update of Adam has alive at once
_NUMBERS = ("learning_rate", "step_count")


def program(step: Step, library: Library = nothing, *, again: bool = True) -> Program:
    """Turn a traced step into code.

    Args:
        step: Traced step.
        library: What the library takes for an operator; see `tuner_planned.torch.library_memory.measured`.
        again: Whether activations that are cheap to compute again are dropped in between.
    """
    return Writer(schedule(step, again=again), library).write()


@dataclass(slots=True)
class Writer:
    """Writes a single program.

    Attributes:
        plan: The step's lines.
        library: What the library takes for an operator.
        lines: Source of the step's body so far.
        constants: Operators and constants by their names in the source.
        names: Names in the source of operators, constants, optimisers and helpers, by what they stand for.
        variables: Variable of every value.
        owners: Operand whose memory a result took.
        sharing: Values by the storage that they lie in.
        helpers: Source of functions that several updates share.
    """

    plan: Schedule
    library: Library
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    variables: dict[fx.Node, str] = field(default_factory=dict)
    owners: dict[fx.Node, fx.Node] = field(default_factory=dict)
    sharing: dict[fx.Node, list[fx.Node]] = field(default_factory=lambda: defaultdict(list))
    helpers: list[str] = field(default_factory=list)

    def write(self) -> Program:
        """Return the program."""
        for index, (node, name) in enumerate(self.plan.ports.items()):
            self.variables[node] = f"{'held' if self.plan.kinds[name] in HELD else 'given'}_{index}"
        last = self._last_uses()
        dying: dict[int, list[fx.Node]] = {}
        for node, index in last.items():
            dying.setdefault(index, []).append(node)
        spans = Spans(self.plan)
        for index, item in enumerate(self.plan.items):
            if isinstance(item, Update):
                spans.add_scratch(index, self._purpose(item), self._update(item))
            else:
                results = self._call(item, index, last)
                spans.add_library(index, item, self.library(item))
                for node in results:
                    spans.add_result(self._owner(node), index)
            for node in operands(item):
                spans.add_use(self._owner(node), index)
            dead = [self.variables[node] for node in dying.get(index, []) if node in self.variables]
            if dead:
                self.lines.append(f"del {', '.join(dead)}")
        batch = {node: name for node, name in self.plan.ports.items() if self.plan.kinds[name] not in HELD}
        arguments = ", ".join(self.variables[node] for node in batch)
        body = [*self.lines, f"return {self.variables[self.plan.loss]}"]
        source = "\n\n".join([*self.helpers, f"def step({arguments}):\n" + "\n".join(f"    {line}" for line in body)])
        held = {name: self.variables[node] for node, name in self.plan.ports.items() if node not in batch}
        tensors = spans.tensors(self._owner(self.plan.loss))
        code = compile(source, "<planned step>", "exec")
        steps = tuple(self._purpose(item) for item in self.plan.items)
        return Program(source, code, self.constants, tuple(batch.values()), held, tensors, steps)

    def _purpose(self, item: Item) -> str:
        """Return what a line is for."""
        return f"update of {self.plan.ports[item.replaced[0]]}" if isinstance(item, Update) else item.name

    def _last_uses(self) -> dict[fx.Node, int]:
        """Return, by value with a name of its own, the last item that reads it."""
        last: dict[fx.Node, int] = {}
        for index, item in enumerate(self.plan.items):
            if isinstance(item, fx.Node):
                last.update(dict.fromkeys(self._results(item), index))
            last.update({node: index for node in operands(item) if node.op != "placeholder"})
        last.pop(self.plan.loss, None)
        return last

    def _results(self, node: fx.Node) -> list[fx.Node]:
        return [node] if value_of(node) is not None else [user for user in node.users if is_item(user)]

    def _owner(self, node: fx.Node) -> fx.Node:
        """Return the node whose storage a value lies in, after results took their operands' places."""
        whole = base(node)
        while whole in self.owners:
            whole = base(self.owners[whole])
        return whole

    def _call(self, node: fx.Node, index: int, last: Mapping[fx.Node, int]) -> list[fx.Node]:
        """Write one operator; return its results."""
        results = self._results(node)
        for result in results:
            self.variables[result] = f"v{len(self.variables)}"
        arguments = self._arguments(node, self.variables)
        target, place = node.target, self._place(node, index, last)
        if place is not None:
            target, keyword = out_of(node)
            arguments = [text for text in arguments if not text.startswith(("memory_format=", "pin_memory="))]
            arguments.append(f"{keyword}={self.variables[place]}")
            self.owners[node] = place
        for result in results:
            self.sharing[self._owner(result)].append(result)
        call = f"{self._constant(target, 'op')}({', '.join(arguments)})"
        if value_of(node) is not None:
            self.lines.append(f"{self.variables[node]} = {call}")
            return results
        names = ["_"] * len(node.meta["val"])
        for result in results:
            names[int(result.args[1])] = self.variables[result]  # type: ignore[arg-type]  # an item's second argument is an index
        self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}")
        if "_" in names:
            self.lines.append("del _")
        return results

    def _place(self, node: fx.Node, index: int, last: Mapping[fx.Node, int]) -> fx.Node | None:
        """Return the operand that dies here and whose memory the result can take."""
        value = value_of(node)
        if value is None or not is_pointwise(node) or out_of(node)[0] is None:
            return None
        for operand in node.all_input_nodes:
            old, owner = value_of(operand), self._owner(operand)
            if old is None or owner.op == "placeholder" or owner is self.plan.loss:
                continue
            alike = (old.shape, old.stride(), old.dtype) == (value.shape, value.stride(), value.dtype)
            whole = bytes_of(operand) == bytes_of(node) == value.numel() * value.element_size()
            dies = last.get(operand) == index
            others = [self._owner(other) for other in node.all_input_nodes if other is not operand]
            if not (alike and whole and dies) or owner in others:
                continue
            if all(last.get(user, index) < index for user in self.sharing[owner] if user is not operand):
                return operand
        return None

    def _update(self, item: Update) -> int:
        """Write an update; return the bytes it takes while it runs."""
        if not item.nodes:
            for port, value in zip(item.replaced, item.values, strict=True):
                self.lines.append(f"{self.variables[port]}.copy_({self.variables[value]})")
            return 0
        recipe = self.plan.recipe
        gradient = None if recipe is None else gradient_of(item, recipe, self.plan.ports)
        if recipe is None or gradient is None:
            self._in_pieces(item)
            return _TEMPORARIES * min(PIECE * 4, max(bytes_of(node) for node in item.nodes))
        if recipe not in self.names:
            self.names[recipe] = f"optimiser_{len(self.constants)}"
            self.constants[self.names[recipe]] = fused(recipe)
        numbers = [node for node, name in self.plan.ports.items() if self.plan.kinds[name] in _NUMBERS]
        arguments = ", ".join(self.variables[node] for node in (*item.replaced, gradient, *numbers))
        self.lines.append(f"{self.names[recipe]}({arguments})")
        weight = item.replaced[0]
        return 0 if laid_alike(weight.meta["val"], gradient.meta["val"]) else bytes_of(weight)

    def _in_pieces(self, item: Update) -> None:
        """Write an update as a call of a function that updates of the same form share."""
        shape = item.nodes[0].meta["val"].shape
        arguments = list(operands(item))
        local = {node: f"a{place}" for place, node in enumerate(arguments)}
        local |= {node: f"b{place}" for place, node in enumerate(item.nodes)}
        lines = [
            f"{local[node]} = {self._constant(node.target, 'op')}({', '.join(self._arguments(node, local))})"
            for node in item.nodes
        ]
        lines += [
            f"{local[port]}.copy_({local[value]})" for port, value in zip(item.replaced, item.values, strict=True)
        ]
        rows = max(1, PIECE // max(1, shape[1:].numel()))
        cut = [local[node] for node in arguments if node.meta["val"].shape == shape] if rows < shape[0] else []
        name = f"update_{len(self.helpers)}"
        head = ", ".join([*(local[node] for node in arguments), *(["rows"] if cut else [])])
        if cut:
            pieces = ", ".join(f"{argument}.split(rows)" for argument in cut)
            lines = [f"for {', '.join(cut)}, in zip({pieces}):", *(f"    {line}" for line in lines)]
        body = "\n".join(f"    {line}" for line in lines)
        text = f"({head}):\n{body}"
        if text not in self.names:
            self.names[text] = name
            self.helpers.append(f"def {name}{text}")
        values = [*(self.variables[node] for node in arguments), *([str(rows)] if cut else [])]
        self.lines.append(f"{self.names[text]}({', '.join(values)})")

    def _arguments(self, node: fx.Node, local: Mapping[fx.Node, str]) -> list[str]:
        positional = [local[value] if isinstance(value, fx.Node) else self._text(value) for value in node.args]
        return positional + [f"{key}={self._text(value)}" for key, value in node.kwargs.items()]

    def _text(self, value: Any) -> str:
        """Return an argument as source."""
        if isinstance(value, fx.Node):
            return self.variables[value]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._text(entry) for entry in value)}]"
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        return self._constant(value, "constant")

    def _constant(self, value: Any, what: str) -> str:
        key = (type(value), repr(value) if isinstance(value, float) else value)  # 0.0 == -0.0
        if key not in self.names:
            self.names[key] = f"{what}_{len(self.constants)}"
            self.constants[self.names[key]] = value
        return self.names[key]


_OUT = ("out", "grad_input")


def out_of(node: fx.Node) -> tuple[Any, str]:
    """Return the overload of a node's operator that writes to a given tensor, and that argument's name."""
    packet = node.target.overloadpacket  # type: ignore[union-attr]  # pointwise nodes are of ATen's operators
    own = _arguments(node.target)
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = _arguments(overload)
        written = [argument for argument in arguments if argument not in own]
        shared = [argument for argument in arguments if argument in own]
        if len(written) == 1 and written[0][0] in _OUT and shared == own:
            return overload, written[0][0]
    return None, ""


def _arguments(overload: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in overload._schema.arguments]  # noqa: SLF001 - the schema has no public name


class Spans:
    """First and last use of every storage of a step's code, collected line by line."""

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._end = len(plan.items) - 1
        self._loss = max(index for index, item in enumerate(plan.items) if _gives(item, plan.loss))
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
        """Return every storage, that of the loss too, with the lines between which it is alive."""
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
    return isinstance(item, fx.Node) and (item is node or (node in item.users and is_item(node)))
