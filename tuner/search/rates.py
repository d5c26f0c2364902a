"""This device's measured rates, kept between runs."""

import hashlib
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

from tuner.folders import cache_folder
from tuner.plan import ModelInfo
from tuner.planner.cost import Rates
from tuner.search.config import write_private

FORMAT = 3  # of what is measured: a file of another one is measured anew


def known(backend: str, model: ModelInfo, threads: int) -> Rates | None:
    """Return what was measured on this device for this model, or None."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Rates).validate_json(_path(backend, model, threads).read_bytes())
    except (OSError, ValidationError):
        return None


def kept(backend: str, model: ModelInfo, threads: int, rates: Rates) -> None:
    """Keep what was measured."""
    path = _path(backend, model, threads)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, json.dumps(asdict(rates)))


def _path(backend: str, model: ModelInfo, threads: int) -> Path:
    machine = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    key = hashlib.blake2b(
        f"{machine} {backend} {model.fingerprint} {threads} {FORMAT}".encode(), digest_size=16
    ).hexdigest()
    return cache_folder() / "rates" / f"{key}.json"
