"""What a trial costs one worker in the storage: it is made, ended and read, through each way to PostgreSQL in turn.

A trial has 25 knobs and 4 attributes, as those of the space `default` do; medians over all rounds, each of which asks
every way once. The study grows with the rounds, as a worker's does: what has ended is read once.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import median

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages import BaseStorage
from optuna.trial import TrialState, create_trial

from benchmarks.fleet.processes import proxy_of
from benchmarks.fleet.servers import PostgreSQL, running
from benchmarks.lib.report import Row, benchmark_parser, finish
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened

KNOBS, ROUNDS, QUICK_ROUNDS = 25, 60, 10
RECORD = {"state": "done", "epochs": [{"loss": 0.5, "seconds": 0.1}] * 10, "values": dict.fromkeys("abcdefgh", 0.5)}


def main() -> None:
    """Print what each step takes."""
    options = benchmark_parser(__doc__).parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(running(PostgreSQL))
        proxy = stack.enter_context(proxy_of(server.url))
        ways = {"database": server.url, "proxy": proxy}
        storages = {name: stack.enter_context(opened(read_address(url))) for name, url in ways.items()}
        rows = measure(storages, QUICK_ROUNDS if options.quick else ROUNDS)
    finish("storage", rows, [], options.json)


def measure(storages: Mapping[str, BaseStorage], rounds: int) -> list[Row]:
    """Return a table of what each way takes, in milliseconds a trial."""
    taken: dict[str, list[list[float]]] = {name: [] for name in storages}
    asked = {name: _steps(storage, name) for name, storage in storages.items()}
    for _ in range(rounds):
        for name, steps in asked.items():
            seconds = []
            for step in steps:
                started = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - started)
            taken[name].append(seconds)
    rows: list[Row] = []
    for name, each in taken.items():
        made, ended, read = (1e3 * median(step) for step in zip(*each, strict=True))
        whole = 1e3 * median(map(sum, each))
        rows.append({"asked": name, "make, ms": made, "end, ms": ended, "read, ms": read, "a trial, ms": whole})
    return rows


def _steps(storage: BaseStorage, name: str) -> tuple[Callable[[], object], ...]:
    """Return what makes a trial, ends it, and reads all that is new, as a worker does."""
    study = storage.create_new_study([optuna.study.StudyDirection.MAXIMIZE] * 2, name)
    made = create_trial(
        state=TrialState.RUNNING,
        params={f"knob-{at}": at / KNOBS for at in range(KNOBS)},
        distributions={f"knob-{at}": FloatDistribution(0.0, 1.0) for at in range(KNOBS)},
        user_attrs={"key": "0" * 16, "rung": 0},
    )
    begun: list[int] = []

    def make() -> None:
        begun.append(storage.create_new_trial(study, made))

    def end() -> None:
        storage.set_trial_user_attr(begun[-1], "record", RECORD)
        storage.set_trial_system_attr(begun[-1], "constraints:memory", -1.0)
        storage.set_trial_state_values(begun[-1], TrialState.COMPLETE, [0.5, 1.0])

    return make, end, lambda: storage.get_all_trials(study, deepcopy=False)


if __name__ == "__main__":
    main()
