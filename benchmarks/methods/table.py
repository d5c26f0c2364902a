"""The table of `benchmarks.methods`, and the page that is made from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.lib.report import Row, interval
from benchmarks.methods.methods import BASELINE, METHODS, Method

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
ADDRESS = "cookbook"
#: Values by name, by task and seed, by method.
Cells = dict[str, dict[tuple[str, int], Mapping[str, float]]]
#: Tasks whose global accuracy counts as much as the local one: old classes, or an old person, must be kept.
KEEPING = frozenset({"clothing", "digits", "new-digits", "new-person"})


def score(task: str, values: Mapping[str, float]) -> float:
    """Return what methods are compared by: the local accuracy, or its mean with the global one."""
    names = ["local_accuracy", *(["global_accuracy"] if task in KEEPING else [])]
    return float(np.mean([values[name] for name in names]))


def gain(cells: Cells, name: str, tasks: Iterable[str]) -> tuple[float, float, int] | None:
    """Return the mean difference from fine-tuning in points, half its interval, and the number of pairs.

    None where the method lacks a task or seed that fine-tuning has, or has none.
    """
    own, base, asked = cells.get(name, {}), cells.get(BASELINE, {}), {*tasks}
    pairs = [place for place in base if place[0] in asked]
    if not pairs or not {*pairs} <= own.keys():
        return None
    found = [100 * (score(place[0], own[place]) - score(place[0], base[place])) for place in pairs]
    return (*interval(found), len(pairs))


def accuracies(cells: Cells, name: str, task: str) -> str:
    """Return the mean local accuracy over seeds and, where there is one, the global one; empty without any."""
    own = [values for (of, _), values in cells.get(name, {}).items() if of == task]
    kinds = [kind for kind in ("local_accuracy", "global_accuracy") if own and kind in own[0]]
    return " / ".join(f"{100 * np.mean([values[kind] for values in own]):.1f}" for kind in kinds)


def told(found: tuple[float, float, int] | None) -> str:
    """Return a difference with its interval; of fewer than three pairs alone."""
    if found is None:
        return ""
    mean, half, pairs = found
    return f"{mean:+.1f} ± {half:.1f}" if pairs > 2 else f"{mean:+.1f}"


def mean_of(cells: Cells, name: str, value: str) -> float:
    """Return the mean of a value over tasks and seeds."""
    return float(np.mean([values[value] for values in cells[name].values()]))


def epochs_of(cells: Cells, name: str, tasks: Iterable[str]) -> str:
    """Return the mean number of epochs that a method trained, for each task that has it."""
    means = {task: [one["epochs"] for (of, _), one in cells.get(name, {}).items() if of == task] for task in tasks}
    return ", ".join(f"{task} {np.mean(own):.0f}" for task, own in means.items() if own)


def rows_of(cells: Cells, methods: Sequence[Method], tasks: Sequence[str]) -> list[Row]:
    """Return a row for each method that has any results."""
    return [
        {
            "method": method.name, **{task: accuracies(cells, method.name, task) for task in tasks},
            f"next to {BASELINE}": told(gain(cells, method.name, tasks)),
            "train s": f"{mean_of(cells, method.name, 'train_seconds'):.2f}",
            "bundle kB": f"{mean_of(cells, method.name, 'bundle_bytes') / 1000:,.0f}",
        }
        for method in methods
        if cells.get(method.name)
    ]  # fmt: skip


def lines_of(path: Path) -> int:
    """Return the lines of a plugin, without empty ones and the docstring at its top."""
    code = path.read_text(encoding="utf-8").split('"""', 2)[2]
    return sum(bool(line.strip()) for line in code.splitlines())


def page(cells: Cells, seconds: float, every: Sequence[str]) -> str:
    """Return `docs/methods.md`."""
    places = sorted({place for own in cells.values() for place in own})
    tasks = [task for task in every if any(place[0] == task for place in places)]
    counts = {task: len({seed for of, seed in places if of == task}) for task in tasks}
    held = ", ".join(f"{task} ({count} seed{'s' if count > 1 else ''})" for task, count in counts.items())
    left = [task for task in every if task not in tasks]
    rows = sorted(
        (method for method in METHODS if cells.get(method.name)),
        key=lambda method: -(gain(cells, method.name, tasks) or (-math.inf,))[0],
    )
    lines = [
        f"| {method.title} | {' | '.join(accuracies(cells, method.name, task) or '–' for task in tasks)} | "
        f"{(told(gain(cells, method.name, tasks)) or '–') if method.name != BASELINE else ''} | "
        f"{mean_of(cells, method.name, 'train_seconds'):.2f} | "
        f"{mean_of(cells, method.name, 'bundle_bytes') / 1000:,.0f} |"
        for method in rows
    ]
    unmeasured = ", ".join(method.title for method in METHODS if not cells.get(method.name))
    return "\n".join([
        *TOP,
        "",
        f"Measured so far: {held or 'nothing'}; with {seconds:g} seconds to choose a setting."
        + (f" Tasks that are not measured yet: {', '.join(left)}." if left else "")
        + (f" Methods that are not measured yet: {unmeasured}." if unmeasured else ""),
        "",
        f"In that time, fine-tuning trained for this many epochs: {epochs_of(cells, BASELINE, tasks)}.",
        "A method whose steps take longer trained for fewer. Where there are few, one epoch more or less can matter",
        "more than the method.",
        "",
        f"| method | {' | '.join(tasks)} | next to fine-tuning | train s | bundle kB |",
        f"|---|{'---|' * len(tasks)}---|---|---|",
        *lines,
        *MIDDLE,
        "",
        "| method | the paper says | found here, points | lines |",
        "|---|---|---|---|",
        *(_claimed(cells, method, tasks) for method in METHODS if method.source),
        *END,
    ]) + "\n"  # fmt: skip


def _claimed(cells: Cells, method: Method, tasks: Sequence[str]) -> str:
    found = gain(cells, method.name, tasks)
    per_task = [(task, gain(cells, method.name, [task])) for task in tasks]
    said = ", ".join(f"{task} {one[0]:+.1f}" for task, one in per_task if one is not None)
    here = said or "not measured yet"
    here += f"; all {told(found)}" if found is not None and len(tasks) > 1 else ""
    name = method.title if method.file is None else f"[{method.title}]({ADDRESS}/{method.file.name})"
    plugin = ", ".join(f"`tuner_{one}`" for one in method.strategies)
    lines = plugin if method.file is None else str(lines_of(method.file))
    note = f". Here: {method.note}" if method.note else ""
    return f"| {name} | {method.claim} ({method.source}){note} | {here} | {lines} |"


TOP = """# Methods

Published methods in one table, under equal conditions. Each is a plugin of one file with at most forty lines of code,
in `docs/cookbook/`, or one that is installed with `tuner`. `python -m benchmarks.methods --page` writes this page from
results that are kept.

```sh
python -m benchmarks.methods --quick                # three tasks, one seed; at most six seconds for each choice
python -m benchmarks.methods --keep results.jsonl   # ten tasks, three seeds; goes on where it was cut
python -m benchmarks.methods --add my_plugin.py     # your plugin, next to fine-tuning
```

How it is fair:

- **Equal bytes.** All tails begin at the same cut of the model, the deepest of its ladder that holds at most 35 % of
  the FLOPs. All read the same stored features, in eight bits. A tenth of the old samples is mixed in, except where a
  method is about having none. Heads that are solved for have the last layer alone. What a method adds to the model is
  in the last column.
- **Equal seconds.** Each method has the same seconds of the processor to choose one of at most three settings on
  validation samples: of the learning rate, or of the one number of a head that is solved for. Epochs are as many as fit
  into them, 20 at most: where a step takes twice the time, there are half as many. After the choice, it trains once
  more, on all of the user's samples. If that diverges, the next best setting is used, and as a last resort a third or a
  ninth of the lowest learning rate.
- **Tests that nobody saw**, those of `benchmarks.alternatives`. Intervals are 95 % ones of the difference from
  fine-tuning, paired by task and seed.

## The table

Local accuracy / global accuracy in percent, means over seeds. The difference is that of the local accuracy, or of the
mean of both where old classes or people must be kept: clothing, digits, new-digits, new-person. Of sounds, each window
counts.
""".splitlines()
MIDDLE = """
Seconds are those of the last training, of the processor. One seed says little: a difference has an interval from three
pairs of a task and a seed on, and is left out of a method that lacks one of them (–).

## What the papers claim, and what was found

The settings differ: the papers have larger models, more data, or a sequence of tasks. A difference here is no verdict
on a paper.
""".splitlines()
END = """
## Add a row

Write a plugin, a file as in the [cookbook](cookbook.md) or the package that `tuner plugins new` writes, and run
`python -m benchmarks.methods --add my_plugin.py` in a checkout; `--tasks digits --seeds 1` is a first look. All of its
strategies take part, each at the values that its first anchor has for its own knobs; without `anchors`, at its start
values, which may do nothing. Where one decides the cut, the store or the recipe, the usual strategy leaves that to it.
A plugin with an optimiser trains by that optimiser. To put the row here, add an entry to
`benchmarks/methods/methods.py`.""".splitlines()
