"""Settings that note which of them were read."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest


class Reading(Mapping[str, Any]):
    """Settings of an edit or a term; `read` has the names of those that were looked at."""

    def __init__(self, settings: Mapping[str, Any], read: set[str]) -> None:
        self._settings, self._read = settings, read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


def require_read(who: str, names: set[str], read: set[str]) -> None:
    """Fail where a setting is never read: plans that differ in it alone would train the same thing."""
    if not names:
        pytest.skip("not applicable: it has no settings")
    if names - read:
        pytest.fail(f"{who}: every setting must be read, but {min(names - read)!r} is not: use it, or leave it out")
