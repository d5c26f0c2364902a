"""The model of a run is chosen before its search opens: entry points of the group ``tuner.candidates``."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BudgetError, MemoryLimitError, RunError, TaskError, UsageError
from tuner.files import write_private
from tuner.machine.awake import CLOCK
from tuner.reading import path_from, read_toml, text_from
from tuner.results.folder import CANDIDATES, FILE, lock_folder
from tuner.task.file.variables import expand
from tuner_choose.candidate import SHARE, Candidate, candidates_of, file_for, values_of
from tuner_choose.record import FORMAT, left_lines, record_of, second_lines

if TYPE_CHECKING:
    from tuner.commands.tune.setup import RunSetup
    from tuner.search.listener import Listener
    from tuner.search.processes.guard import Interrupt
    from tuner_choose.forked import Forked
    from tuner_choose.halving import Seen

#: Most samples that candidates are compared on: of more, the work to solve for heads grows with the cube.
MOST_SAMPLES = 1000
CHOOSING = "choosing the model"
SLOW_TO_LOAD = "loading the libraries took too long to compare any: give more with --time"
#: If loading takes more than this share of the time, no candidate is compared. Else a pass is ended after this share of
#: the time that remained after loading.
MOST_SHARE = 2 * SHARE
#: The strategy that varies the size of the pictures, and its knob.
RESOLUTION, PIXELS = "resolution", "resolution.pixels"


def choose(
    task: object, setup: "RunSetup", folder: Path | None, listener: "Listener", interrupt: "Interrupt"
) -> tuple[object, Path | None]:
    """Return a run's task with the chosen model in the place of its own, and the run's folder, where it is known.

    Nothing is done for a task with one model. A run that continues has the model that was chosen for it.

    Args:
        task: What names the task, or a task.
        setup: What is asked of the run.
        folder: The run's folder; None where the user names none.
        listener: Receives progress.
        interrupt: The user's request to stop.

    Raises:
        UsageError: Models are named for what is no task file, or several for a study of several workers.
        TaskError: None of the candidates can be used.
    """
    models = setup.asked.models
    file = file_for(task, models)
    if file is None or (".toml#" in str(task) and not models):
        return task, folder
    values = expand(read_toml(file, TaskError, "give a task file"), file)
    names = candidates_of(models, values, file)
    if len(names) < 2:  # noqa: PLR2004 - there is nothing to choose from
        return (f"{file}#{names[0]}" if models else task), folder
    if setup.asked.study is not None:
        raise UsageError(
            "workers of a study share one model, but there are several candidates: give one with --model, or leave "
            "--study out"
        )
    folder = folder or Path("runs") / path_from(str(values.get("name") or text_from(file.resolve().parent.name)))
    resume = setup.asked.resume
    if resume and (record := record_of(folder)) is not None:
        if (chosen := record["chosen"]) not in names:  # what a folder from elsewhere names is not opened
            raise RunError(f"{folder} was begun with the model {chosen}: give it among --model, or another --out")
        _search_sizes(setup, record)
        return f"{file}#{chosen}", folder
    if resume and (folder / FILE).exists():
        raise RunError(f"{folder} was begun with one model: give the task as it was, or another --out")
    with lock_folder(folder, resume=resume):
        record = Choice(file, values, names, setup, listener).made(interrupt)
        write_private(folder / CANDIDATES, json.dumps(record, indent=1))
    _search_sizes(setup, record)
    return f"{file}#{record['chosen']}", folder


def _search_sizes(setup: "RunSetup", record: Mapping[str, Any]) -> None:
    """Let a run search the sizes of the chosen network that may be as good, as the choice found them."""
    space, sizes = setup.space, record.get("sizes")
    if sizes and _varies_sizes(setup):
        strategies = (*(space.strategies or ()), RESOLUTION)
        setup.space = replace(space, strategies=strategies, knobs={**space.knobs, PIXELS: tuple(map(int, sizes))})


def _varies_sizes(setup: "RunSetup") -> bool:
    """Return whether a run's search space can be given sizes: not where the user decides on them there."""
    names = setup.space.strategies
    return names is not None and RESOLUTION not in names and RESOLUTION in setup.host.strategies


class Choice:
    """A choice among candidates for the model of a run.

    Args:
        file: The task file.
        values: Its content.
        names: The candidates.
        setup: What is asked of the run.
        listener: Receives progress.
    """

    def __init__(
        self, file: Path, values: dict[str, Any], names: list[str], setup: "RunSetup", listener: "Listener"
    ) -> None:
        self._file, self._names, self._setup, self._listener = file, names, setup, listener
        self._contents, self._refused, self._looks = dict[str, dict[str, Any]](), dict[str, str](), 0
        for name in names:
            try:
                self._contents[name] = values_of(values, name, file)
            except TaskError as error:
                self._refuse(name, error)

    def made(self, interrupt: "Interrupt") -> dict[str, Any]:
        """Return what was chosen, and of what, as `CANDIDATES` has it.

        Raises:
            TaskError: None of the candidates can be used.
        """
        from tuner_choose.halving import LATE, Halving, table

        started, until = CLOCK.now(), math.inf if self._setup.end is None else self._setup.end
        self._listener.phase(CHOOSING)
        if len(self._contents) == 1:
            return self._first(CLOCK.now() - started, "no other can be used")
        with ExitStack() as stack:
            try:
                forked = self._opened(interrupt, stack)
            except MemoryLimitError:
                raise
            except BudgetError:
                return self._first(CLOCK.now() - started, LATE)
            outline, opened = forked.outline, CLOCK.now()  # the search needs what has been loaded too
            if opened - started > MOST_SHARE * (until - started):
                self._setup.supervisor = forked.hand_over()
                return self._first(opened - started, SLOW_TO_LOAD)
            forked.end = opened + MOST_SHARE * (until - opened)
            if not outline.info.labelled:
                raise TaskError('candidates are compared by your labels, and local.labels = "none": give one model')

            def look(name: str, begin: int, upto: int, within: float) -> "Seen":
                self._listener.step("passes", self._looks, 2 * len(self._contents) + 1)
                self._looks += 1
                return forked.look(self._contents[name], begin, upto, within)

            halving = Halving(
                list(self._contents),
                look,
                total=min(MOST_SAMPLES, outline.info.local_train),
                classes=len(outline.local_labels),
                outputs=len(outline.labels),
                targets=outline.targets,
                end=opened + SHARE * (until - opened),
                until=until,
                samples=outline.info.local_train,
                by_flops=self._setup.asked.deterministic,
            )
            picked = halving.choose()
            self._setup.supervisor = forked.hand_over()
        chosen = Candidate.of(picked.name)
        second = halving.second(picked, chosen.differs_in_size) if _varies_sizes(self._setup) else None
        seconds = CLOCK.now() - started
        self._listener.say(f"model: {picked.name}, chosen from {len(self._names)} candidates in {seconds:.1f} s")
        rows = table(halving, picked, second)
        for line in (*left_lines(rows), *second_lines(rows)):
            self._listener.say(line)
        sizes = [] if second is None else [chosen.size, Candidate.of(second.name).size]
        return self._record(picked.name, seconds, rows, outline.targets.unit, sizes)

    def _first(self, seconds: float, reason: str) -> dict[str, Any]:
        """Return the choice where no candidate was seen."""
        chosen, *others = self._contents
        self._listener.say(f"model: {chosen}, the first of {len(self._names)} candidates: {reason}")
        left = [{"candidate": name, "reason": reason} for name in others]
        return self._record(chosen, seconds, [{"candidate": chosen, "chosen": True}, *left])

    def _record(
        self, chosen: str, seconds: float, rows: Sequence[Mapping[str, Any]], unit: str = "", sizes: Sequence[int] = ()
    ) -> dict[str, Any]:
        left_out = [{"candidate": name, "reason": reason} for name, reason in self._refused.items()]
        found = {"format": FORMAT, "chosen": chosen, "seconds": seconds, "unit": unit}
        return {**found, "sizes": list(sizes), "candidates": [*rows, *left_out]}

    def _opened(self, interrupt: "Interrupt", stack: ExitStack) -> "Forked":
        """Open the task with the first candidate that it can be opened with."""
        from tuner.commands.tune.session import load_study
        from tuner_choose.forked import Forked

        factories = [str(values["model"].get("factory")) for values in self._contents.values()]
        for name in list(self._contents):
            task = f"{self._file}#{name}"
            with ExitStack() as own:
                forked = own.enter_context(Forked(task, self._file, self._setup, interrupt, factories))
                try:
                    _ = forked.outline
                    load_study()  # for the search, while the other process loads the libraries
                    forked.wait_open()
                except TaskError as error:
                    self._refuse(name, error)
                else:
                    stack.push(own.pop_all())
                    return forked
        reasons = list(dict.fromkeys(self._refused.values()))
        which = reasons if len(reasons) == 1 else [f"{name}: {reason}" for name, reason in self._refused.items()]
        raise TaskError(f"none of the {len(self._names)} candidates for the model can be used: {'; '.join(which)}")

    def _refuse(self, name: str, error: TaskError) -> None:
        self._contents.pop(name, None)
        self._refused[name] = str(error)
        self._listener.say(f"candidate {name} is left out: {error}")
