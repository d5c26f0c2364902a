"""The command ``tuner serve``."""

from contextlib import suppress
from pathlib import Path

from tuner.cli.options import print_line


def serve(bundle: Path, /, *, port: int | None = None) -> None:
    """Serve a bundle and the page that predicts with it to browsers on this device, until Ctrl-C.

    Parameters
    ----------
    bundle
        A bundle's folder.
    port
        The port; 0 for any that is free [default: one for each bundle].
    """
    from tuner.commands.interruption import terminated_as_interrupted
    from tuner.errors import UsageError
    from tuner_serve.server import PageServer

    if port is not None and not 0 <= port < 2**16:
        raise UsageError(f"--port must be from 0 to 65535, got {port}")
    with terminated_as_interrupted(), PageServer(bundle, port) as server, suppress(KeyboardInterrupt):
        print_line(f"{server.address} (Ctrl-C ends it)")
        server.serve_forever()
