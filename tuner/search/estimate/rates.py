"""This device's measured rates, kept between runs."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from tuner.backends.base import Session
from tuner.errors import BudgetError, MemoryLimitError, TunerError
from tuner.files import cache_folder, write_private
from tuner.machine import this_machine
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.planner.device import COMPLETE, Rates, nominal, rates_from, unscaled_bytes
from tuner.search.listener import MEASURING, Listener

FORMAT = 1  # of what is measured: a file of another one is measured anew
#: How the file is called that holds the figures of a measuring that is not complete.
FIGURES = ".figures.json"
#: Times that a prediction is timed at most, the seconds after which that is not repeated, and how many times as long as
#: the fastest the slowest takes on a busy device.
REPEATS, REPEAT_SECONDS, BUSY_RATIO = 4, 1.0, 1.5


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
    write_private(_path(backend, model, threads), json.dumps(asdict(rates)))


def rates_of(
    session: Session, backend: str, *, measure: bool, within: float = math.inf, listener: Listener | None = None
) -> Rates:
    """Return this device's rates on a session's model: as kept, or measured now; from FLOPs if clocks are not to count.

    Every figure is kept as soon as it is measured: a measuring that was cut short, after ``within`` seconds at most,
    continues where it was. What there is no time to measure is computed from FLOPs.
    """
    model, threads, listener = session.model, usable_processors(), listener or Listener()
    if not measure:
        return nominal(model)
    if (rates := read_rates(backend, model, threads)) is not None:
        return _with_least_latency(session, backend, rates, CLOCK.now() + within)
    end, figures = CLOCK.now() + within, _Figures(_path(backend, model, threads), model, listener)
    listener.phase(MEASURING)
    try:
        rates = session.measure(threads, within, figures.by_name, figures.note)
    except (MemoryLimitError, BudgetError) as error:
        if isinstance(error, MemoryLimitError):
            listener.say(f"warning: {error}; costs that are not measured are computed from FLOPs instead")
        rates = rates_from(model, figures.by_name)
    if not rates.complete:
        figures.explain()
        return rates
    try:
        rates = replace(rates, first=session.first_steps(threads, end - CLOCK.now()))
    except BudgetError:  # the next run measures it
        return rates
    except (TunerError, RuntimeError):  # without it, estimates are corrected by the first trials
        pass
    keep_rates(backend, model, threads, rates)
    figures.path.unlink(missing_ok=True)
    return _with_least_latency(session, backend, rates, end, is_new=True)


def _with_least_latency(session: Session, backend: str, rates: Rates, end: float, *, is_new: bool = False) -> Rates:
    """Return rates with the time of a prediction measured again, a few times until a clock's `end`.

    It is the median of the faster half: the device may be busy, and trials do not correct this rate. Of that and of
    what an earlier run kept, the less counts; rates that are new are one of the repeats.
    """
    model, threads = session.model, usable_processors()
    others = ["fill peak", "step", "read", "trace", f"prefix {rates.prefix_kind}", COMPLETE]
    known = dict.fromkeys([*_passes(model), *others], 0.0)  # of what is known, the values do not matter here
    found, until = [rates.latency_seconds] if is_new else [], min(end, CLOCK.now() + REPEAT_SECONDS)
    with suppress(TunerError, RuntimeError):  # what was kept stays
        while rates.latency_seconds and len(found) < REPEATS and (not found or CLOCK.now() < until):
            found.append(session.measure(threads, end - CLOCK.now(), known).latency_seconds)
    found = sorted(seconds for seconds in found if seconds > 0)
    if found and ((latency := median(found[: (len(found) + 1) // 2])) < rates.latency_seconds or is_new):
        rates = replace(rates, latency_seconds=latency, latency_busy=found[-1] > BUSY_RATIO * found[0])
        keep_rates(backend, model, threads, rates)
    return rates


def _passes(model: ModelInfo) -> list[str]:
    """Return the names of the figures of a model's blocks, forward and backward."""
    return [f"{kind} {index}" for kind in ("forward", "train") for index in range(model.num_blocks)]


class _Figures:
    """What was measured so far, by name, kept in a file."""

    def __init__(self, path: Path, model: ModelInfo, listener: Listener) -> None:
        from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

        self.path, self._model, self._listener = path.with_suffix(FIGURES), model, listener
        self.by_name: dict[str, float] = {}
        with suppress(OSError, ValidationError):
            adapter = TypeAdapter(dict[str, Annotated[FiniteFloat, Field(ge=0)]])
            self.by_name = adapter.validate_json(self.path.read_bytes())

    def note(self, progress: Mapping[str, Any]) -> bool:
        """Keep a figure that a session reports; nothing is to stop."""
        name, value = progress.get("figure"), progress.get("value")
        if isinstance(name, str) and isinstance(value, int | float) and 0 <= value < math.inf:
            self.by_name[name] = value
            with suppress(OSError):  # the disk is full: it is measured again another time
                write_private(self.path, json.dumps(self.by_name), durable=False)
            self._listener.step("blocks", *self._passes())
        return False

    def explain(self) -> None:
        """Say how much was measured, where it is not all."""
        done, of = self._passes()
        if done < of:
            self._listener.say(
                f"measured {done} of {of} passes of blocks, forward and backward; the others' costs are computed from "
                "FLOPs, and the next run continues measuring"
            )

    def _passes(self) -> tuple[int, int]:
        """Return how many passes of blocks, forward or backward, were measured, and of how many."""
        names = _passes(self._model)
        return sum(name in self.by_name for name in names), len(names)


def _path(backend: str, model: ModelInfo, threads: int) -> Path:
    about = f"{this_machine()} {backend} {model.fingerprint} {model.blocks[0].in_shape} {threads} {FORMAT}"
    folder = cache_folder() / "rates"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}.json"


def with_sizes(
    rates: Rates, session: Session, backend: str, plans: Sequence[TrialPlan], *, measure: bool, within: float = math.inf
) -> Rates:
    """Return the rates with those at the sizes of the input of some plans: as kept, or measured now, as in `rates_of`.

    What there is no time for follows from FLOPs, at the pace of the task's own size; the engine is the same.
    """
    known = {
        "pace": sum(rates.forward_seconds) / max(1e-12, sum(nominal(session.model).forward_seconds)),
        f"prefix {rates.prefix_kind}": rates.prefix_ratio,
        "load": rates.load_seconds,
        "step": rates.step_seconds,
        "read": rates.read_bytes,
        "trace": rates.trace_seconds,
        COMPLETE: 1.0,
    }

    def at(plan: TrialPlan) -> Rates:
        if not measure:
            return nominal(plan.model)
        threads = usable_processors()
        figures = _Figures(_path(backend, plan.model, threads), plan.model, Listener())
        with suppress(MemoryLimitError, BudgetError):
            if not {"latency", f"train {plan.model.num_blocks - 1}"} <= figures.by_name.keys():  # the last one
                session.measure(threads, within, {**known, **figures.by_name}, figures.note, plan)
        filling = rates.fill_peak_bytes - unscaled_bytes(session.model) + unscaled_bytes(plan.model)
        own = rates_from(plan.model, {**known, **figures.by_name, "fill peak": filling})
        share = sum(own.forward_seconds) / max(1e-12, sum(rates.forward_seconds))
        return replace(own, first=rates.first, latency_seconds=own.latency_seconds or share * rates.latency_seconds)

    return replace(rates, sizes=tuple((plan.size, at(plan)) for plan in plans))
