"""The command `tuner dashboard`."""

from contextlib import suppress

from tuner.cli.options import print_line


def dashboard(run: str, /, *, port: int = 0) -> None:
    """Show a run in the browser with optuna-dashboard, on this device only, until Ctrl-C.

    Parameters
    ----------
    run
        A run's folder, or the address of a study that several workers share.
    port
        Port to listen on; 0 for any that is free.
    """
    from tuner.commands.runs.source import shown_place
    from tuner_dashboard.server import serve_dashboard

    shown = shown_place(run)
    with suppress(KeyboardInterrupt):
        serve_dashboard(run, port, lambda address: print_line(f"{address} shows {shown}; Ctrl-C ends it"))
        return
    print_line("the dashboard has ended; the run is as it was")
