"""Outcomes of arms that stay in a file, so that a long lane can be run in pieces, and after it was cut."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from tuner.results.records.trial import Outcome

OUTCOMES = TypeAdapter(Outcome)
#: What an outcome depends on: texts, numbers, plans and edits, whose `repr` says it all.
Key = tuple[object, ...]


class Kept:
    """Outcomes by what they depend on, one a line of a file; several processes may add to it at a time.

    It does not notice that the code has changed: a file belongs to one version of it.

    Args:
        path: File; None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> dict[str, Outcome]:
        """Return all outcomes of the file, by the `repr` of their keys."""
        if self._path is None or not self._path.exists():
            return {}
        lines = map(json.loads, self._path.read_text(encoding="utf-8").splitlines())
        return {line["key"]: OUTCOMES.validate_python(line["outcome"]) for line in lines}

    def outcome(self, key: Key, run: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a key: that of the file, or what `run` measures, which the file then has too."""
        known = self.read().get(repr(key))
        if known is not None:
            return known
        found = run()
        if self._path is not None:
            line = json.dumps({"key": repr(key), "outcome": asdict(found)}) + "\n"
            with self._path.open("ab", buffering=0) as file:  # one write, which other processes' do not divide
                file.write(line.encode())
        return found
