"""``tuner``, and ``python -m tuner``: a Ctrl-C while the command line is imported is one line too."""

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from tuner.cli.app import run_program

        code = run_program()
    except KeyboardInterrupt:
        print("tuner: interrupted", file=sys.stderr)  # noqa: T201 - the command line prints
        code = INTERRUPTED
    if code == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # where Ctrl-C came in the middle of an `exec`, Python itself would exit by the signal
    sys.exit(code)


if __name__ == "__main__":
    main()
