"""The command `tuner dashboard`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from tuner.cli.options import Whole, print_line


def dashboard(run: Path, /, *, port: Annotated[int, Whole] = 0) -> None:
    """Show a run in the browser with optuna-dashboard, on this device only, until Ctrl-C.

    Parameters
    ----------
    run
        A run's folder.
    port
        Port to listen on [default: any that is free].
    """
    from tuner.commands.dashboard import serve_dashboard

    with suppress(KeyboardInterrupt):
        serve_dashboard(run, port, lambda address: print_line(f"{address} shows {run}; Ctrl-C ends it"))
        return
    print_line("the dashboard has ended; the run is as it was")
