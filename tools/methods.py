"""Write the tables of methods and fields in ``docs/plugins.md``: ``python -m tools.methods``; a test compares."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import tuner.plugin

PAGE = Path(__file__).parent.parent / "docs" / "plugins.md"
#: Base classes of what plugins write.
WRITTEN = (
    "Strategy",
    "Evolving",
    "Solver",
    "Completing",
    "Backend",
    "Session",
    "TaskReader",
    "StudyOpener",
    "StudyReader",
)
#: What plugins are given, or return, and the page describes nowhere else.
GIVEN = ("Training", "MeasuredTrial", "Outcome", "ClassCounts", "Trial", "Filling", "Exported")
_SECTION = re.compile(r"(?<=^## Methods and fields\n\n).*?(?=^## )", re.MULTILINE | re.DOTALL)


def page(text: str) -> str:
    """Return the page with the tables as the classes are."""
    return _SECTION.sub(lambda _: tables(), text, count=1)


def tables() -> str:
    """Return the section: every method that a plugin may define, then fields of what it is given."""
    lines = ["A method in **bold** has no default. `python -m tools.methods` writes these tables from the classes.", ""]
    lines += ["| method | what it is for |", "|---|---|"]
    for name in WRITTEN:
        lines += [f"| {method} | {text} |" for method, text in methods(getattr(tuner.plugin, name))]
    lines += ["", "| field | is |", "|---|---|"]
    for name in GIVEN:
        lines += [f"| `{name}.{field}` | {text} |" for field, text in fields(getattr(tuner.plugin, name))]
    return "\n".join([*lines, "", ""])


def methods(kind: type) -> Iterator[tuple[str, str]]:
    """Yield each method of a class with its arguments, and the first line of its docstring."""
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        arguments = ", ".join([*inspect.signature(function).parameters][1:])
        text = f"`{kind.__name__}.{name}`" if isinstance(member, property) else f"`{kind.__name__}.{name}({arguments})`"
        is_needed = getattr(function, "__isabstractmethod__", False) or "override" in inspect.getsource(function)
        yield (f"**{text}**" if is_needed else text), _cell((function.__doc__ or "").split("\n\n")[0])


def fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield each attribute that the docstring of a class lists, with its first sentence."""
    listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    for name, text in re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", listed, re.MULTILINE | re.DOTALL):
        yield name, _cell(text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
