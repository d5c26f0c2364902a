"""How the tests run: the same examples every time, however slow the machine, and threads that wait without spinning."""

import os

from hypothesis import settings

#: OpenMP's threads spin while they wait for each other: next to another busy process that costs many times the work.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
