"""Options that plugins add to commands: they are looked for where one is not known, and for help."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Signature, signature, unwrap
from typing import Any

from cyclopts import App

from tuner.distribution import EntryPoint, offered


def add_options(app: App, arguments: Sequence[str], load: Callable[[EntryPoint], Any]) -> bool:
    """Add the options of plugins, loaded by `load`, to the command that is called; return whether there are any.

    They are the keyword arguments of a function, which is called before the command where one of them is given.
    """
    path, apps, _ = app.parse_commands([word for word in arguments if not word.startswith("-")])
    points = offered("tuner.options").items()
    functions = [load(point) for name, point in points if name.rpartition(" ")[0] == " ".join(path)]
    if not (functions and path and (command := apps[-1].default_command)):
        return False
    command = unwrap(command)
    parameters = signature(command).parameters
    every = [one for function in functions for one in signature(function, eval_str=True).parameters.values()]
    added = {one.name: one for one in every if one.name not in parameters}

    @wraps(command)
    def extended(*arguments: Any, **given: Any) -> Any:
        for function in functions:
            names = signature(function).parameters.keys() & added.keys() & given.keys()
            if names:
                function(**{name: given.pop(name) for name in names})
        return command(*arguments, **given)

    extended.__annotations__ = command.__annotations__ | {name: one.annotation for name, one in added.items()}
    extended.__dict__["__signature__"] = Signature([*parameters.values(), *added.values()])  # read by `signature`
    apps[-1].default_command = extended
    return True
