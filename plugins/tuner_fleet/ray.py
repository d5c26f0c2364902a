"""Start the workers of a study on a cluster of Ray: ``python -m tuner_fleet.ray TASK --workers 8 --study ADDRESS``.

All other options are those of `tuner run`, for each worker. The cluster is the one that RAY_ADDRESS names, or that
`ray start` made this device a part of; where there is none, the workers run on this device.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from logging import WARNING, getLogger
from pathlib import Path
from typing import Any, NoReturn

from cyclopts import CycloptsError

from tuner.cli.app import add_commands, app
from tuner.cli.common import applied, split
from tuner.cli.options import document, note, print_line
from tuner.commands.interruption import terminated_as_interrupted
from tuner.commands.tune.setup import check_study
from tuner.errors import (
    DONE,
    INTERRUPTED,
    MISTAKE,
    USAGE,
    RunError,
    TunerError,
    UsageError,
    first_line,
    missing_extra,
)
from tuner.plugin.core import build_host
from tuner.results.records.config import RunRequest
from tuner_fleet import process
from tuner_fleet.address import read_address, warn_of_password
from tuner_fleet.process import Ended, Part, Worker, work

USAGE_LINE = "python -m tuner_fleet.ray TASK --workers N --study ADDRESS [options of tuner run]"
FOLDER = Path("runs", "fleet")
#: Beginnings of variables that each worker has from here: options of `tuner run`, and where an S3-compatible store is.
#: The keys to it are each device's own.
VARIABLES = ("TUNER_RUN_", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")
#: Ray's name of cores.
CORES = "CPU"
#: How often Ray looks for a cluster that does not answer, for 40 s each; its own 20 are a quarter of an hour.
TRIES = "RAY_NUM_REDIS_GET_RETRIES", "1"


def main(arguments: list[str]) -> int:
    """Start workers, wait until all have ended, and return the exit code."""
    try:
        return _main(arguments)
    except (CycloptsError, UsageError) as error:
        note(f"tuner: {' '.join(str(error).split())}")
        return USAGE
    except (TunerError, ModuleNotFoundError) as error:
        known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else error
        if known is None:
            raise
        note(f"tuner: {known}")
        return known.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _main(arguments: list[str]) -> int:
    common = split(arguments)
    options, rest = _parser().parse_known_args(common.rest)
    asked = _asked(rest)
    study = options.study or asked.study
    if study is None:
        raise UsageError("workers need a study that they share: give --study, such as postgresql://host/db")
    shown = check_study(build_host(), replace(asked, study=study))
    base = Path(options.out or asked.out or FOLDER).absolute()
    workers = [Worker(number, str(base / str(number))) for number in range(1, options.workers + 1)]
    passed = ["-v"] * common.verbosity + rest
    parts = [part_of(one, passed, study, os.environ) for one in workers]
    with applied(common):
        warn_of_password(read_address(study), note)
        is_whole = run(workers, parts, options.cores)
        if options.json:
            print_line(document("fleet-workers-1", {"study": shown, "workers": [asdict(one) for one in workers]}))
        else:
            for one in workers:
                print_line(f"worker {one.worker} on {one.device or 'no device'}, {one.folder}: {one.last}")
        note(f"next: tuner show {shown}" if is_whole else "to continue: the same command with --resume")
    if not is_whole:
        return INTERRUPTED
    return DONE if all(one.exit_code == DONE for one in workers) else MISTAKE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a mistake in one line."""
        raise UsageError(f"{message}: {USAGE_LINE}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("python -m tuner_fleet.ray", USAGE_LINE, description=__doc__, allow_abbrev=False)
    parser.add_argument("--workers", type=_count, required=True, help="how many to start")
    parser.add_argument("--study", help="the study's address, such as postgresql://host/db [default: TUNER_RUN_STUDY]")
    parser.add_argument("--cores", type=_count, default=1, help="cores that Ray keeps free for each [default: 1]")
    parser.add_argument("--out", "-o", help=f"folder of the workers' folders 1, 2, ... [default: {FOLDER}]")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else to stdout")
    return parser


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _asked(arguments: Sequence[str]) -> RunRequest:
    """Return what options of `tuner run` say, those of the environment included.

    Raises:
        CycloptsError: They are none of its options.
        UsageError: One is ``--dry-run``.
    """
    add_commands(["run"])
    _, bound, _ = app.parse_args(["run", *arguments], exit_on_error=False, print_error=False)
    if bound.arguments.get("dry_run"):
        raise UsageError("--dry-run starts no workers: ask `tuner run TASK --dry-run`")
    asked: RunRequest = bound.arguments.get("request", RunRequest())
    return asked


def part_of(worker: Worker, arguments: Sequence[str], study: str, environment: Mapping[str, str]) -> Part:
    """Return what a worker is started with."""
    variables = {name: value for name, value in environment.items() if name.startswith(VARIABLES)}
    whole = ("run", *arguments, "--out", worker.folder)
    return Part(whole, str(Path.cwd()), {**variables, "TUNER_RUN_STUDY": study})


def run(workers: Sequence[Worker], parts: Sequence[Part], cores: int) -> bool:
    """Start workers, and wait until all have ended; on Ctrl-C end them. Ray prints what they say.

    Returns:
        Whether they ended by themselves.

    Raises:
        RunError: There is no cluster where one is named, or none of its devices has so many cores.
        ModuleNotFoundError: Ray is not installed.
    """
    if os.environ.get("RAY_ADDRESS", "local") != "local":
        os.environ.setdefault(*TRIES)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_COLOR_PREFIX", "1" if sys.stderr.isatty() else "0")
    import ray

    try:
        ray.init(log_to_driver=getLogger("tuner").isEnabledFor(WARNING), logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(f"Ray cannot be reached ({first_line(error)}): see `ray status`, and RAY_ADDRESS") from None
    try:
        with terminated_as_interrupted():  # Ray has taken SIGTERM for itself
            places = places_in(ray.nodes(), ray.available_resources(), cores)
            if places < len(parts):
                note(f"{len(parts) - places} of {len(parts)} workers wait for free cores")
            return _run(workers, parts, cores)
    finally:
        with suppress(KeyboardInterrupt):
            ray.shutdown()


def places_in(nodes: Sequence[Mapping[str, Any]], free: Mapping[str, float], cores: int) -> int:
    """Return how many workers have free cores, at most: Ray does not say which device the free ones are on.

    Raises:
        RunError: No device has so many.
    """
    sizes = [int(node["Resources"].get(CORES, 0)) for node in nodes if node["Alive"]]
    places = sum(size // cores for size in sizes)
    if not places:
        largest = max(sizes, default=0)
        raise RunError(f"--cores {cores}: the largest device of the cluster has {largest}: give fewer by --cores")
    return min(places, int(free.get(CORES, 0)) // cores)


def _run(workers: Sequence[Worker], parts: Sequence[Part], cores: int) -> bool:
    import ray

    start = ray.remote(num_cpus=cores, max_retries=0, scheduling_strategy="SPREAD")(work)
    running = [
        start.options(name=f"worker {one.worker}").remote(part) for one, part in zip(workers, parts, strict=True)
    ]
    is_whole = True
    try:
        ray.wait(running, num_returns=len(running))
    except KeyboardInterrupt:
        is_whole = False
        for task in running:
            ray.cancel(task)  # as Ctrl-C on its device; what waits for a core never begins
    for one, task in zip(workers, running, strict=True):
        try:
            ended: Ended = ray.get(task)
        except ray.exceptions.TaskCancelledError:
            ended = Ended("", None, process.INTERRUPTED)
        except ray.exceptions.RayError as error:
            ended = Ended("", MISTAKE, f"lost: {first_line(error)}")
        one.device, one.exit_code, one.last = ended.device, ended.exit_code, ended.last
    return is_whole


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
