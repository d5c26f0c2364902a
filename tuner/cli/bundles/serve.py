"""The command that shows a bundle's page: serve."""

from contextlib import suppress
from pathlib import Path

from tuner.cli.options import print_line


def serve(bundle: Path, /, *, port: int = 8000) -> None:
    """Serve the page of a bundle to browsers on this device, until Ctrl-C.

    Parameters
    ----------
    bundle
        A bundle's folder, exported with --web.
    port
        The port; 0 for any that is free.
    """
    from tuner.commands.bundles.serve import PageServer
    from tuner.errors import UsageError

    if not 0 <= port < 2**16:
        raise UsageError(f"--port must be from 0 to 65535, got {port}")
    with PageServer(bundle, port) as server, suppress(KeyboardInterrupt):
        print_line(f"{server.address} (Ctrl-C ends it)")
        server.serve_forever()
