"""The command `tuner mcp`."""

from pathlib import Path


def mcp(folder: Path, /) -> None:
    """Serve tools for an assistant on stdin and stdout, by the Model Context Protocol, until stdin is closed.

    All tools but plan and run only read. These two execute the code that a task names; run trains, within a time and a
    memory that the assistant must state.

    Parameters
    ----------
    folder
        The folder in which the assistant may name runs, tasks and bundles.
    """
    import mcp.server  # noqa: F401 - before what it brings: where it is missing, the error names it

    from tuner_mcp.server import Tools, server

    server(Tools(folder)).run("stdio")
