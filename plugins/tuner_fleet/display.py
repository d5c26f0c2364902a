"""What the workers of a fleet are doing, on stderr: a line for each on a terminal, elsewhere all that they say."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from logging import WARNING, getLogger

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.cli.options import note
from tuner.printable import printable
from tuner_fleet.process import News, Worker

#: Lines that say what to do next with a worker's folder, and those about a trial: each worker has one of it.
NEXT, TRIAL = "next: ", "trial "


class Display:
    """Notes what workers say, and shows it.

    Args:
        workers: The workers.
        console: Where to show it.
    """

    def __init__(self, workers: Sequence[Worker], console: Console) -> None:
        self._workers, self._console = workers, console
        self._trials: set[str] = set()

    def shown(self) -> AbstractContextManager[object]:
        """Return a block in which a terminal has a line for each worker; with -q nothing is shown."""
        if not self._console.is_terminal or not getLogger("tuner").isEnabledFor(WARNING):
            return nullcontext()
        return Live(get_renderable=self._table, console=self._console, transient=True)

    def hear(self, worker: Worker, news: News) -> None:
        """Note what a worker says."""
        if not worker.device:
            worker.device, worker.last = news.device, "begins"
        worker.exit_code = news.exit_code
        for line in news.lines:
            if line.startswith(NEXT):
                continue
            worker.last = line
            if not self._console.is_terminal and line not in self._trials:
                note(f"worker {worker.worker}: {line}")
            if line.startswith(TRIAL):
                self._trials.add(line)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for one in self._workers:
            last = Text(printable(one.last), no_wrap=True, overflow="ellipsis")
            table.add_row(f"worker {one.worker}", Text(one.device), last)
        return table
