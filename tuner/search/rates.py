"""This device's measured rates, kept between runs."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from tuner.backends.base import Session
from tuner.errors import MemoryLimitError, TunerError
from tuner.files import cache_folder, write_private
from tuner.plan.info import ModelInfo
from tuner.planner.device import Rates, nominal
from tuner.search.setting import cores

FORMAT = 4  # of what is measured: a file of another one is measured anew


def read_rates(backend: str, model: ModelInfo, threads: int) -> Rates | None:
    """Return what was measured on this device for this model, or None."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Rates).validate_json(_path(backend, model, threads).read_bytes())
    except (OSError, ValidationError):
        return None


def keep_rates(backend: str, model: ModelInfo, threads: int, rates: Rates) -> None:
    """Keep what was measured, if all of it was."""
    if not rates.complete:
        return
    path = _path(backend, model, threads)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_private(path, json.dumps(asdict(rates)))


def _path(backend: str, model: ModelInfo, threads: int) -> Path:
    machine = f"{platform.node()} {platform.machine()} {os.cpu_count()}"
    about = f"{machine} {backend} {model.fingerprint} {model.blocks[0].in_shape} {threads} {FORMAT}"
    key = hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
    return cache_folder() / "rates" / f"{key}.json"


def rates_of(
    session: Session,
    backend: str,
    *,
    measure: bool,
    within: float = math.inf,
    announce: Callable[[str], None] = lambda _line: None,
) -> Rates:
    """Return this device's rates on a session's model: as kept, or measured now.

    Args:
        session: The opened task.
        backend: Its name.
        measure: Whether clocks count; else the rates are derived from FLOPs.
        within: Seconds that a measurement should take at most.
        announce: Called before a measurement, which takes seconds.
    """
    model = session.model
    if not measure:
        return nominal(model)
    rates = read_rates(backend, model, cores())
    if rates is None:
        announce("measuring how fast this device runs this model, once")
        try:
            rates = session.measure(cores(), within)
        except MemoryLimitError as error:
            announce(f"warning: {error}; costs are computed from FLOPs instead")
            return nominal(model)
        if rates.complete:  # there is time for more
            with suppress(TunerError, RuntimeError):  # without it, estimates are corrected by the first trials
                rates = replace(rates, first=session.first_steps(cores()))
        keep_rates(backend, model, cores(), rates)
    return rates
