"""Task files as in the tests of tasks."""

from tests.task.conftest import _cache, load, write

__all__ = ["_cache", "load", "write"]
