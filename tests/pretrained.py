"""A cache that holds the weights of the built-in task's network, as a device has them after its first run.

So it has those that `tests.sessions.barely_pretrained` and `tests.runtime.bundles.known_digits` train for fewer epochs.
Where another PyTorch begins with other weights, none of these is found, and the network trains.
"""

import os
import shutil
from pathlib import Path

WEIGHTS = Path(__file__).parent / "fixtures" / "pretrained"


def with_weights(cache: Path) -> Path:
    """Make a cache folder, and put the weights there: a test that is about something else need not train them."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(WEIGHTS, cache / "pretrained", dirs_exist_ok=True)
    return cache


def with_rates(cache: Path) -> Path:
    """Let a cache share what all runs of this session measure of the device: measuring a network takes a second."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    (cache / "rates").symlink_to(os.environ["TESTS_RATES"])
    return cache
