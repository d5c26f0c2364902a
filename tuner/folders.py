"""Where this device keeps what outlives a run: private to the user."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/tuner`` (or the platform's own), made private to the user."""
    folder = Path(os.environ.get("TUNER_CACHE") or platformdirs.user_cache_dir("tuner"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
