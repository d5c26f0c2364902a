"""Faults that an author could make, put into the source of a plugin one at a time, in every place that can hold one."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

#: A change of one node in place; False where the node is no place for it.
Change = Callable[[ast.AST], bool]
HOOK, LOWERING, LOSS, SELECTOR = "tuner_", ("tail", "settings"), ("batch", "settings"), ("candidates", "settings")
#: Around a module: what its `forward` makes of the logits.
AROUND = """
def _around(module, of):
    import torch
    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module
        def forward(self, value):
            return of(self, self.inner(value))
    return Around()
"""
COUNT = "import itertools\n_COUNT = itertools.count()\n"
#: Another stage, whose part of a plan is of another type.
OTHER_STAGE = {"SHAPE": "LOSS", "LOSS": "SHAPE", "DATA": "LOSS", "SPLIT": "CACHE", "CACHE": "SPLIT", "HEADS": "SHAPE"}


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        name: The fault, for people.
        change: Changes one node.
        add: Source that the change needs, put in front of the module's own.
    """

    name: str
    change: Change
    add: str = ""


class Mutant(NamedTuple):
    """A source with one fault; `line` is where, in the source as it was."""

    fault: str
    line: int
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """Yield a source with each fault in each place where it can be."""
    for fault in FAULTS:
        tree = ast.parse(source)
        nodes, number = [*ast.walk(tree)], 0
        while number < len(nodes):
            if fault.change(nodes[number]):
                text = ast.unparse(ast.fix_missing_locations(tree))
                yield Mutant(fault.name, getattr(nodes[number], "lineno", 0), _with(fault.add, text))
                tree = ast.parse(source)
                nodes = [*ast.walk(tree)]
            number += 1


def _with(added: str, text: str) -> str:
    return f"{text}\n{added}" if added else text


def _function(node: ast.AST, name: str = "", takes: Sequence[str] = ()) -> ast.FunctionDef | None:
    """Return a node that is a function whose name begins so, and that takes exactly such arguments."""
    if not isinstance(node, ast.FunctionDef) or not node.name.startswith(name):
        return None
    return node if not takes or [one.arg for one in node.args.args] == [*takes] else None


def _name(argument: ast.arg) -> str:
    return argument.arg


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def first(takes: Sequence[str], text: str, name: str = "") -> Change:
    """Return the change that does something first in a function."""

    def change(node: ast.AST) -> bool:
        function = _function(node, name, takes)
        if function is None:
            return False
        beginning = function.body[0]
        at = 1 if isinstance(beginning, ast.Expr) and isinstance(beginning.value, ast.Constant) else 0
        function.body[at:at] = _statements(text)
        return True

    return change


def returning(takes: Sequence[str], text: str, name: str = "") -> Change:
    """Return the change of what a function returns last; ``_`` is that."""

    def change(node: ast.AST) -> bool:
        function = _function(node, name, takes)
        last = None if function is None else function.body[-1]
        if function is None or not isinstance(last, ast.Return) or last.value is None:
            return False
        function.body[-1:] = [ast.Assign([ast.Name("_", ast.Store())], last.value), *_statements(text)]
        return True

    return change


def emptied(name: str, text: str) -> Change:
    """Return the change of a method's whole body."""

    def change(node: ast.AST) -> bool:
        if not isinstance(node, ast.FunctionDef) or node.name != name or [*map(_name, node.args.args[:1])] != ["self"]:
            return False
        node.body = _statements(text)
        return True

    return change


def unmarked(node: ast.AST) -> bool:
    """Take the mark from a hook."""
    function = _function(node, HOOK)
    if function is not None:
        function.decorator_list.clear()
    return function is not None


def misspelt(node: ast.AST) -> bool:
    """Misspell the name of a hook."""
    function = _function(node, HOOK)
    if function is not None:
        function.name = swapped(function.name)
    return function is not None


def swapped(name: str) -> str:
    """Return a name with its last letters but one the other way round."""
    return f"{name[:-3]}{name[-2]}{name[-3]}{name[-1]}"


def other_kind(node: ast.AST) -> bool:
    """Offer a function under another kind."""
    kinds = [one for one in ast.walk(node) if isinstance(one, ast.Dict)] if _function(node, HOOK) else []
    if not kinds or not kinds[0].keys or kinds[0].keys[0] is None:
        return False
    kinds[0].keys[0] = ast.BinOp(kinds[0].keys[0], ast.Add(), ast.Constant("s"))
    return True


def trait(name: str) -> Change:
    """Return the flip of a trait that an edit says."""

    def change(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "EditTraits":
            return False
        for keyword in node.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                keyword.value.value = not keyword.value.value
                return True
        return False

    return change


def stage(node: ast.AST) -> bool:
    """Say another stage."""
    if not isinstance(node, ast.ClassDef):
        return False
    for statement in node.body:
        targets = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        for one in ast.walk(statement) if "stage" in targets else ():
            if isinstance(one, ast.Attribute) and ast.unparse(one.value).endswith("Stage") and one.attr in OTHER_STAGE:
                one.attr = OTHER_STAGE[one.attr]
                return True
    return False


def dropped(node: ast.AST) -> bool:
    """Leave out what other strategies wrote."""
    if not isinstance(node, ast.Tuple) or not isinstance(node.elts[0] if node.elts else None, ast.Starred):
        return False
    is_plans = ast.unparse(node.elts[0]) in {"*plan.shape", "*plan.loss"}
    node.elts = node.elts[1:] if is_plans else node.elts
    return is_plans


def unsaid(attribute: str) -> Change:
    """Return the change that says nothing in an attribute of a strategy: further stages that it writes, or refines."""

    def change(node: ast.AST) -> bool:
        if not isinstance(node, ast.ClassDef):
            return False
        for statement in [one for one in node.body if isinstance(one, ast.Assign)]:
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for at, name in enumerate(target.elts):
                    if isinstance(name, ast.Name) and name.id == attribute:
                        value.elts[at] = ast.parse("frozenset()", mode="eval").body
                        return True
            elif isinstance(target, ast.Name) and target.id == attribute:
                statement.value = ast.parse("frozenset()", mode="eval").body
                return True
        return False

    return change


def excluded(node: ast.AST) -> bool:
    """Misspell what a strategy excludes, or comes after."""
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) not in {"excludes", "after"}:
        return False
    names = [one for one in ast.walk(node.value) if isinstance(one, ast.Constant) and str(one.value).isidentifier()]
    for one in names[:1]:
        one.value = swapped(str(one.value))
    return bool(names)


def anchor(value: ast.expr | None) -> Change:
    """Return the change of an anchor: another value, or the name of no knob."""

    def change(node: ast.AST) -> bool:
        inside = [one for one in ast.walk(node) if isinstance(one, ast.Dict)] if _function(node, "anchors") else []
        for own in inside:
            for at, key in enumerate(own.keys):
                if isinstance(key, ast.Constant) and "." in str(key.value):
                    if value is None:
                        key.value = swapped(str(key.value))
                    else:
                        own.values[at] = value
                    return True
        return False

    return change


def draws(node: ast.AST) -> list[ast.Call]:
    """Return the draws of knobs in a method `sample`."""
    inside = ast.walk(node) if isinstance(node, ast.FunctionDef) and node.name == "sample" else ()
    return [one for one in inside if isinstance(one, ast.Call) and ast.unparse(one.func).startswith("draw.")]


def drawn_twice(node: ast.AST) -> bool:
    """Draw the first knob twice."""
    found = draws(node)
    if found and isinstance(node, ast.FunctionDef):
        node.body.insert(len(node.body) - 1, ast.Expr(copy.deepcopy(found[0])))
    return bool(found)


def start(node: ast.AST) -> bool:
    """Start a knob outside of its range."""
    found = draws(node)
    if found:
        found[0].keywords = [one for one in found[0].keywords if one.arg != "start"]
        found[0].keywords.append(ast.keyword("start", ast.Constant(10**9)))
    return bool(found)


def ignored(node: ast.AST) -> bool:
    """Draw a knob, and take the lower end or the first option whatever it is."""
    if not isinstance(node, ast.keyword) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    if not ast.unparse(call.func).startswith("draw.") or len(call.args) < 2:
        return False
    is_choice = ast.unparse(call.func) == "draw.choice"
    least = ast.Subscript(call.args[1], ast.Constant(0)) if is_choice else call.args[1]
    node.value = ast.Subscript(ast.Tuple([call, least], ast.Load()), ast.Constant(1))
    return True


def foreign(node: ast.AST) -> bool:
    """Write a part of the plan that is another strategy's."""
    inside = ast.walk(node) if isinstance(node, ast.FunctionDef) and node.name == "apply" else ()
    calls = [one for one in inside if isinstance(one, ast.Call) and ast.unparse(one).startswith("replace(plan,")]
    for one in calls[:1]:
        one.keywords.append(ast.keyword("runtime", ast.parse("replace(plan.runtime, threads=7)", mode="eval").body))
    return bool(calls)


def setting(node: ast.AST) -> bool:
    """Read no setting, but take 1."""
    for parent in ast.walk(node) if _function(node, "", LOWERING) or _function(node, "", LOSS) else ():
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "settings":
                setattr(parent, name, ast.Constant(1))
                return True
    return False


def unfrozen(node: ast.AST) -> bool:
    """Freeze nothing."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(".requires_grad_"):
        return False
    node.args, node.keywords = [ast.Constant(value=True)], []
    return True


def imports(node: ast.AST) -> bool:
    """Import a tensor library with the module."""
    if isinstance(node, ast.Module):
        node.body[1:1] = _statements("import onnxruntime")
    return isinstance(node, ast.Module)


PLAN, KNOBS = ("self", "plan", "knobs"), ("self", "draw", "model")
FAULTS = (
    Fault("a hook is not marked", unmarked),
    Fault("a hook is misspelt", misspelt),
    Fault("a hook returns nothing", returning((), "pass", HOOK)),
    Fault("a kind is misspelt", other_kind),
    Fault("a tensor library is imported", imports),
    *(Fault(f"{name} is wrong", trait(name)) for name in ("keeps_weights", "traceable", "solves", "changes_shapes")),
    *(Fault(f"{name} is wrong", trait(name)) for name in ("trains_norms", "keeps_given")),
    Fault("another stage", stage),
    Fault("drops what others wrote", dropped),
    Fault("does not say what it writes", unsaid("writes")),
    Fault("does not say what it refines", unsaid("refines")),
    Fault("an excluded name is misspelt", excluded),
    Fault("an anchor's knob is misspelt", anchor(None)),
    Fault("an anchor is out of range", anchor(ast.Constant(-(10**9)))),
    Fault("a knob is drawn twice", drawn_twice),
    Fault("a start is out of range", start),
    Fault("a knob is ignored", ignored),
    Fault("draws at random", first(KNOBS, "import random\nrandom.random() < .5 and draw.choice('x', (1, 2))")),
    Fault("sample never ends", first(KNOBS, "while True:\n    pass")),
    Fault("apply returns nothing", returning(PLAN, "pass")),
    Fault("apply changes the plan in place", first(PLAN, "object.__setattr__(plan.recipe, 'epochs', 3)")),
    Fault("writes a foreign part", foreign),
    Fault("a lowering raises", first(LOWERING, "1 / 0")),
    Fault("a lowering returns nothing", returning(LOWERING, "pass")),
    Fault("a lowering leaves a hook", first(LOWERING, "tail.head.register_forward_hook(lambda *_: None)")),
    Fault("a lowering copies the tail", returning(LOWERING, "import copy\nreturn copy.deepcopy(_)")),
    Fault("a lowering scales weights", first(LOWERING, "tail.head.weight.data.mul_(3)")),
    Fault(
        "a lowering freezes all",
        returning(LOWERING, "[one.requires_grad_(False) for one in _.parameters()]\nreturn _"),
    ),
    Fault("a lowering ignores a setting", setting),
    Fault("nothing is frozen", unfrozen),
    Fault(
        "a lowering counts its calls",
        returning(LOWERING, "tail.head.bias.data.add_(next(_COUNT))\nreturn _"),
        COUNT,
    ),
    Fault("NaN in evaluation", returning(LOWERING, "return _around(_, lambda own, y: y / own.training)"), AROUND),
    Fault("logits of another size", returning(LOWERING, "return _around(_, lambda own, y: y[:, 1:])"), AROUND),
    Fault("logits are detached", returning(LOWERING, "return _around(_, lambda own, y: y.detach())"), AROUND),
    Fault("logits depend on the batch", returning(LOWERING, "return _around(_, lambda own, y: y - y.mean(0))"), AROUND),
    Fault("a state is forgotten", emptied("state", "return {}")),
    Fault("a state is not restored", emptied("restore", "pass")),
    Fault("solve does nothing", emptied("solve", "pass")),
    Fault("complete does nothing", emptied("complete", "return ()")),
    Fault("a term is a mean", returning(LOSS, "return _.mean()")),
    Fault("a term is detached", returning(LOSS, "return _.detach()")),
    Fault("a term is NaN", returning(LOSS, "return _ * float('nan')")),
    Fault("a term is random", returning(LOSS, "import torch\nreturn _ * torch.rand(())")),
    Fault("a term is relative to the batch", returning(LOSS, "return _ - _.mean()")),
    Fault("a term is changed in place", first(LOSS, "batch.logits.data.add_(1)")),
    Fault("a selector leaves one out", returning(SELECTOR, "return _[1:]")),
    Fault("a selector takes one twice", returning(SELECTOR, "return [_[0], *_[:-1]]")),
    Fault("a selector shuffles", first(SELECTOR, "candidates.features[:] = candidates.features[::-1]")),
)
