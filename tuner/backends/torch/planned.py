"""A traced step as code that runs in the planned order and stays at the planned peak.

The code is one function: an operator a line, `del` after the last use, results written over operands that die. What
the next step replaces (weights, running statistics, optimiser state) is overwritten where it lies, by a fused kernel or
piece by piece, so that an update needs no memory of its own. So the memory of a step is known before it runs:
`tensors_of`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import fx, nn

from tuner.backends.memory import KEPT_BYTES, MAPPED_BESIDE_KEPT, return_freed
from tuner.backends.torch.fused import fused, gradient_of, laid_alike
from tuner.backends.torch.schedule import Item, Schedule, Update, operands, schedule
from tuner.backends.torch.scratch import Library, Taken, nothing, signature
from tuner.backends.torch.step import Step
from tuner.backends.torch.values import base, bytes_of, is_item, is_pointwise, value_of
from tuner.planner.lifetimes import Tensor
from tuner.planner.placement import max_live

#: Elements of the pieces in which an update runs: a few of them fit into a core's own cache.
PIECE = 32_768
_HELD = {"parameter": "weight", "buffer": "weight", "state": "state"}
_TEMPORARIES = 4  # pieces that an update of Adam has alive at once
_NUMBERS = ("learning_rate", "step_count")
_OUT = ("out", "grad_input")
Run = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A step's code.

    Attributes:
        source: Python; defines ``step``.
        code: The source, compiled.
        names: What the code refers to: operators and constants.
        batch: Names of the ports that are given anew in every step, in the order of ``step``'s arguments.
        held: The code's name of every port that lives on, by the port's name.
        tensors: What is alive when; see `tensors_of`.
        steps: What every line is for: an operator's node, or which weight is updated.
    """

    source: str
    code: CodeType
    names: Mapping[str, Any]
    batch: tuple[str, ...]
    held: Mapping[str, str]
    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]


def program(step: Step, library: Library = nothing, *, again: bool = True) -> Program:
    """Turn a step into code.

    Args:
        step: As traced.
        library: What the library takes for an operator; `tuner.backends.torch.scratch.measured` on this device.
        again: Whether activations that are cheap to compute again are dropped in between.

    Raises:
        StepError: The step's updates cannot run in place.
    """
    return _Writer(schedule(step, again=again), library).write()


def tensors_of(step: Step, library: Library = nothing, *, again: bool = True) -> Sequence[Tensor]:
    """Return every tensor of a step's program and when it is alive; arguments as of `program`.

    Execution steps are the program's lines in order. Views and results that take an operand's place have no entry of
    their own. Kinds: ``weight`` (buffers too), ``state``, ``input`` (all that a step is given), ``saved`` (for the
    backward pass), ``activation`` (not saved), ``again`` (computed again), ``gradient`` (of weights), ``derivative``
    (of activations), ``scratch`` (of the library, while an operator runs), ``library`` (what it keeps: compiled code,
    its own buffers, freed memory), ``output`` (the loss).
    """
    return program(step, library, again=again).tensors


def held_by(step: Step, tail: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a step holds of a tail: its own weights and buffers, and optimiser state of zeros, by port name."""
    own = {**dict(tail.named_parameters()), **dict(tail.named_buffers())}
    held = {}
    for port in step.inputs:
        if port.kind == "state":
            held[port.name] = torch.zeros_like(own[port.name.partition(".")[2]], requires_grad=False)
        elif port.kind in _HELD:
            held[port.name] = own[port.name].detach()
    return held


def bound(made: Program, held: Mapping[str, torch.Tensor]) -> Run:
    """Return the step as a function of its batch ports, in the order of `Program.batch`; it returns the loss.

    From here on the process gives freed memory back (`tuner.backends.memory.return_freed`) but for what the plan counts
    as ``freed``: without that it would stand above the planned peak.

    Args:
        made: The program.
        held: By port name, the tensors to read and overwrite, laid out in memory as the step was traced.
    """
    return_freed(KEPT_BYTES)
    names = dict(made.names) | {name: held[port] for port, name in made.held.items()}
    exec(made.code, names)  # noqa: S102 - the source is made here, from operators' names
    run: Run = names["step"]
    return torch.inference_mode()(run)


@dataclass(slots=True)
class _Writer:
    """Writes one program; lives as long as that takes."""

    plan: Schedule
    library: Library
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    known: dict[Any, str] = field(default_factory=dict)
    variables: dict[fx.Node, str] = field(default_factory=dict)
    owners: dict[fx.Node, fx.Node] = field(default_factory=dict)
    sharing: dict[fx.Node, list[fx.Node]] = field(default_factory=lambda: defaultdict(list))
    helpers: dict[str, str] = field(default_factory=dict)

    def write(self) -> Program:
        for index, (node, name) in enumerate(self.plan.ports.items()):
            self.variables[node] = f"{'held' if self.plan.kinds[name] in _HELD else 'given'}_{index}"
        last = self._last_uses()
        dying: dict[int, list[fx.Node]] = {}
        for node, index in last.items():
            dying.setdefault(index, []).append(node)
        spans = _Spans(self.plan)
        for index, item in enumerate(self.plan.items):
            if isinstance(item, Update):
                spans.scratch(index, self._said(item), self._update(item))
            else:
                made = self._call(item, index, last)
                spans.taken(index, item, self.library(item))
                for node in made:
                    spans.born(self._owner(node), index)
            for node in operands(item):
                spans.used(self._owner(node), index)
            gone = [self.variables[node] for node in dying.get(index, []) if node in self.variables]
            if gone:
                self.lines.append(f"del {', '.join(gone)}")
        batch = {node: name for node, name in self.plan.ports.items() if self.plan.kinds[name] not in _HELD}
        arguments = ", ".join(self.variables[node] for node in batch)
        body = [*self.lines, f"return {self.variables[self.plan.loss]}"]
        source = "\n\n".join([*self.helpers, f"def step({arguments}):\n" + "\n".join(f"    {line}" for line in body)])
        held = {name: self.variables[node] for node, name in self.plan.ports.items() if node not in batch}
        tensors = spans.tensors(self._owner(self.plan.loss))
        code = compile(source, "<planned step>", "exec")
        steps = tuple(self._said(item) for item in self.plan.items)
        return Program(source, code, self.constants, tuple(batch.values()), held, tensors, steps)

    def _said(self, item: Item) -> str:
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
        for one in results:
            self.variables[one] = f"v{len(self.variables)}"
        arguments = [self._text(one) for one in node.args]
        arguments += [f"{key}={self._text(one)}" for key, one in node.kwargs.items()]
        target, place = node.target, self._place(node, index, last)
        if place is not None:
            target, keyword = _out_of(node)
            arguments = [text for text in arguments if not text.startswith(("memory_format=", "pin_memory="))]
            arguments.append(f"{keyword}={self.variables[place]}")
            self.owners[node] = place
        for one in results:
            self.sharing[self._owner(one)].append(one)
        call = f"{self._constant(target, 'op')}({', '.join(arguments)})"
        if value_of(node) is not None:
            self.lines.append(f"{self.variables[node]} = {call}")
            return results
        names = ["_"] * len(node.meta["val"])
        for one in results:
            names[int(one.args[1])] = self.variables[one]  # type: ignore[arg-type]  # an item's second argument is an index
        self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}")
        if "_" in names:
            self.lines.append("del _")
        return results

    def _place(self, node: fx.Node, index: int, last: Mapping[fx.Node, int]) -> fx.Node | None:
        """Return the operand that dies here and whose memory the result can take."""
        value = value_of(node)
        if value is None or not is_pointwise(node) or _out_of(node)[0] is None:
            return None
        for one in node.all_input_nodes:
            given, owner = value_of(one), self._owner(one)
            if given is None or owner.op == "placeholder" or owner is self.plan.loss:
                continue
            alike = (given.shape, given.stride(), given.dtype) == (value.shape, value.stride(), value.dtype)
            whole = bytes_of(one) == bytes_of(node) == value.numel() * value.element_size()
            if not (alike and whole and last.get(one) == index) or owner in map(self._owner, _others(node, one)):
                continue
            if all(last.get(user, index) < index for user in self.sharing[owner] if user is not one):
                return one
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
        if recipe not in self.known:
            self.known[recipe] = f"optimiser_{len(self.constants)}"
            self.constants[self.known[recipe]] = fused(recipe)
        numbers = [node for node, name in self.plan.ports.items() if self.plan.kinds[name] in _NUMBERS]
        given = ", ".join(self.variables[node] for node in (*item.replaced, gradient, *numbers))
        self.lines.append(f"{self.known[recipe]}({given})")
        weight = item.replaced[0]
        return 0 if laid_alike(weight.meta["val"], gradient.meta["val"]) else bytes_of(weight)

    def _in_pieces(self, item: Update) -> None:
        """Write an update as a call of a function that updates of the same form share."""
        shape = item.nodes[0].meta["val"].shape
        given = list(operands(item))
        local = {node: f"a{place}" for place, node in enumerate(given)}
        local |= {node: f"b{place}" for place, node in enumerate(item.nodes)}
        lines = [
            f"{local[node]} = {self._constant(node.target, 'op')}({', '.join(self._arguments(node, local))})"
            for node in item.nodes
        ]
        lines += [
            f"{local[port]}.copy_({local[value]})" for port, value in zip(item.replaced, item.values, strict=True)
        ]
        rows = max(1, PIECE // max(1, shape[1:].numel()))
        cut = [local[node] for node in given if node.meta["val"].shape == shape] if rows < shape[0] else []
        name = f"update_{len(self.helpers)}"
        head = ", ".join([*(local[node] for node in given), *(["rows"] if cut else [])])
        if cut:
            pieces = ", ".join(f"{one}.split(rows)" for one in cut)
            lines = [f"for {', '.join(cut)}, in zip({pieces}):", *(f"    {line}" for line in lines)]
        body = "\n".join(f"    {line}" for line in lines)
        text = f"({head}):\n{body}"
        if text not in self.known:
            self.known[text] = name
            self.helpers[f"def {name}{text}"] = name
        values = [*(self.variables[node] for node in given), *([str(rows)] if cut else [])]
        self.lines.append(f"{self.known[text]}({', '.join(values)})")

    def _arguments(self, node: fx.Node, local: Mapping[fx.Node, str]) -> list[str]:
        positional = [local[one] if isinstance(one, fx.Node) else self._text(one) for one in node.args]
        return positional + [f"{key}={self._text(one)}" for key, one in node.kwargs.items()]

    def _text(self, value: Any) -> str:
        """Return an argument as source."""
        if isinstance(value, fx.Node):
            return self.variables[value]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._text(one) for one in value)}]"
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        return self._constant(value, "constant")

    def _constant(self, value: Any, what: str) -> str:
        key = (type(value), repr(value) if isinstance(value, float) else value)  # 0.0 == -0.0
        if key not in self.known:
            self.known[key] = f"{what}_{len(self.constants)}"
            self.constants[self.known[key]] = value
        return self.known[key]


class _Spans:
    """First and last use of every storage."""

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._end = len(plan.items) - 1
        self._loss = max(index for index, item in enumerate(plan.items) if item is plan.loss or _gives(item, plan.loss))
        self._first: dict[fx.Node, int] = {}
        self._last: dict[fx.Node, int] = {}
        self._gradients: set[fx.Node] = set()
        self._scratch: list[Tensor] = []
        self._calls: set[Any] = set()

    def born(self, owner: fx.Node, index: int) -> None:
        self._first.setdefault(owner, index)
        self._last[owner] = max(index, self._last.get(owner, 0))

    def used(self, owner: fx.Node, index: int) -> None:
        self._last[owner] = max(index, self._last.get(owner, 0))
        if isinstance(self._plan.items[index], Update):
            self._gradients.add(owner)

    def scratch(self, index: int, name: str, nbytes: int) -> None:
        if nbytes:
            self._scratch.append(Tensor(f"{name}.scratch", nbytes, index, index, "scratch"))

    def taken(self, index: int, node: fx.Node, taken: Taken) -> None:
        self.scratch(index, node.name, taken.beside)
        call = signature(node)
        if taken.kept and call not in self._calls:
            self._calls.add(call)
            self._scratch.append(Tensor(f"{node.name}.library", taken.kept, 0, self._end, "library"))

    def tensors(self, loss: fx.Node) -> tuple[Tensor, ...]:
        held = tuple(
            Tensor(name, bytes_of(node), 0, self._end, _HELD.get(self._plan.kinds[name], "input"))
            for node, name in self._plan.ports.items()
        )
        made = tuple(
            Tensor(
                node.name,
                bytes_of(node),
                first,
                self._end if node is loss else self._last[node],
                self._kind(node, loss),
            )
            for node, first in self._first.items()
            if node.op != "placeholder" and bytes_of(node)
        )
        small = [one for one in (*made, *self._scratch) if one.nbytes < MAPPED_BESIDE_KEPT]
        kept = Tensor("freed", min(KEPT_BYTES, max_live(small)), 0, self._end, "library")
        return (*held, *made, *self._scratch, kept)

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


def _others(node: fx.Node, operand: fx.Node) -> list[fx.Node]:
    return [one for one in node.all_input_nodes if one is not operand]


def _out_of(node: fx.Node) -> tuple[Any, str]:
    """Return the overload of a node's operator that writes to a given tensor, and that argument's name."""
    packet = node.target.overloadpacket  # type: ignore[union-attr]  # pointwise nodes are of ATen's operators
    own = _arguments(node.target)
    for name in packet.overloads():
        overload = getattr(packet, name)
        given = _arguments(overload)
        written = [one for one in given if one not in own]
        if len(written) == 1 and written[0][0] in _OUT and [one for one in given if one in own] == own:
            return overload, written[0][0]
    return None, ""


def _arguments(overload: Any) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in overload._schema.arguments]  # noqa: SLF001 - the schema has no public name
