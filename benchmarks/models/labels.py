"""How often `tuner labels suggest` finds the right label: among its first one, and its first three.

By name: the 50 classes of ESC-50 onto names of AudioSet, written by hand from its public ontology:
`benchmarks/models/tables/audioset_names.txt` has most of its 527 names, `esc50_audioset.tsv` the right ones of each
class (for a few, which have no counterpart, the nearest sound).

By the model, and by both: the ten classes of ESC-10 onto the 24 labels of `examples/sounds`, where those count that
the example gives this class and no other.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from benchmarks.lib.places import EXAMPLES
from benchmarks.lib.report import Row, benchmark_parser, finish
from tuner_labels.names import likeness
from tuner_labels.suggestions import PROPOSED, Evidence, suggest_labels

EXAMPLE = EXAMPLES / "sounds" / "task.toml"


def names() -> list[str]:
    """Return the names of AudioSet."""
    text = (Path(__file__).parent / "tables" / "audioset_names.txt").read_text(encoding="utf-8")
    return [name for line in text.splitlines() for name in line.split("|")]


def written() -> dict[str, list[str]]:
    """Return the right names of each class of ESC-50."""
    lines = (Path(__file__).parent / "tables" / "esc50_audioset.tsv").read_text(encoding="utf-8").splitlines()
    return {name: right.split("|") for name, _, right in (line.partition("\t") for line in lines)}


def row(what: str, found: Mapping[str, Sequence[str]], right: Mapping[str, Sequence[str]]) -> Row:
    """Return how many classes have a right label first, and among the first three; and those that have none."""
    first = sum(bool(set(found[name][:1]) & set(right[name])) for name in right)
    missed = [name for name in right if not set(found[name][:PROPOSED]) & set(right[name])]
    return {"by": what, "classes": len(right), "first": first, "in three": len(right) - len(missed), "missed": missed}


def by_name() -> Row:
    """Compare ESC-50 with AudioSet."""
    known, right = names(), written()
    found = {name: sorted(known, key=lambda other: -likeness(name, other)) for name in right}
    return row(f"names, ESC-50 onto {len(known)}", found, right)


def right_of_example() -> dict[str, set[str]]:
    """Return the labels of each class of the example that no other class has."""
    content = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))["labels"]
    closed: dict[str, set[str]] = {}
    for name, labels in content["map"].items():
        waiting, closed[name] = list(labels), set()
        while waiting:
            closed[name].add(label := waiting.pop())
            waiting += content["parents"].get(label, [])
    return {
        name: own - set().union(*(labels for other, labels in closed.items() if other != name))
        for name, own in closed.items()
    }


def of_example(by: Evidence) -> Row:
    """Compare ESC-10 with the labels of the example."""
    suggestions = suggest_labels(str(EXAMPLE), by)
    found = {one.label: [proposal.label for proposal in one.proposals] for one in suggestions}
    return row(f"{by}, ESC-10 onto 24", found, {name: sorted(right) for name, right in right_of_example().items()})


def main() -> None:
    """Run the benchmark."""
    options = benchmark_parser(__doc__, "names only: the model is not run").parse_args()
    rows = [by_name(), *([] if options.quick else [of_example(by) for by in get_args(Evidence)])]
    finish("labels", rows, [], options.json)


if __name__ == "__main__":
    main()
