"""Whether a run was made on this device: the code that it names is run on the user's own word only.

A run names its task, which may be a Python file, and files of plugins. Of a run from elsewhere these would be anybody's
code. So a run carries a mark of the names, made with a key that never leaves the user's cache.
"""

import hashlib
import hmac
import json
import secrets
from pathlib import Path

from filelock import FileLock

from tuner.files import cache_folder, write_private
from tuner.reading import read_bytes
from tuner.results.records.config import RunConfig

KEY = "key"
KEY_BYTES = 32


def mark_of(config: RunConfig) -> str:
    """Return the mark of the code that a run names, 64 hex digits: without the same key nobody makes the same.

    Nothing where the key cannot be read or written, and the run is then nobody's.
    """
    named = json.dumps([config.task, config.plugins, config.home]).encode()
    try:
        key = _key(cache_folder() / KEY)
    except OSError:
        return ""
    return hmac.new(key, named, hashlib.sha256).hexdigest()


def is_own(config: RunConfig, mark: str) -> bool:
    """Return whether a run that carries a mark was made on this device."""
    return mark != "" and hmac.compare_digest(mark_of(config).encode(), mark.encode())


def _key(path: Path) -> bytes:
    """Return the key, made where there is none."""
    with FileLock(path.with_name(f"{KEY}.lock"), mode=0o600):
        if not path.exists():
            write_private(path, secrets.token_bytes(KEY_BYTES))
    return read_bytes(path, KEY_BYTES)
