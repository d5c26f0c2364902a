"""The command line: arguments in, one call, text or JSON out, and the error boundary."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from cyclopts import App, CycloptsError

from tuner.cli.bundle import apply, export, predict
from tuner.cli.describe import describe
from tuner.cli.init import init
from tuner.cli.options import ReaderGoneError
from tuner.cli.plugins import plugins_app
from tuner.cli.prior import prior_app
from tuner.cli.run import demo, run, show
from tuner.cli.service import rollback, status, watch
from tuner.cli.store import forget, store_app
from tuner.distribution import installed_version
from tuner.errors import TunerError, disk_error, missing_extra
from tuner.printable import one_line, printable

DONE, MISTAKE, USAGE, INTERRUPTED = 0, 1, 2, 130
app = App(
    name="tuner",
    help="Tune how a model is personalised on this device, within a time and memory budget.",
    version=installed_version,
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `call` reports it in one line
    help_format="plaintext",  # markdown would cost a quarter of the time that --help takes
)


app.command(store_app)
app.command(prior_app)
app.command(plugins_app)
for command in (init, run, show, export, apply, predict, describe, demo, forget, watch, status, rollback):
    app.command(command)


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale may know ASCII only, and a file's name may be any bytes
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):  # `tuner watch` reads names of files there
        sys.stdin.reconfigure(errors="surrogateescape")
    sys.exit(call(sys.argv[1:]))


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 the user's mistake or a limit, 2 usage, 130 interrupted."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"tuner: {one_line(' '.join(str(error).split()))} See tuner --help.", file=sys.stderr)
        return USAGE
    except (TunerError, ModuleNotFoundError, OSError, SystemExit) as error:
        line = _line(error)
        if line is None:
            raise
        print(f"tuner: {one_line(line)}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt as interruption:
        print("tuner: interrupted; what was finished is kept", file=sys.stderr)
        for command in interruption.args:
            print(f"to continue:\n{printable(command)}", file=sys.stderr)
        return INTERRUPTED
    except ReaderGoneError:
        with suppress(OSError):  # what is still buffered goes nowhere, without an error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return DONE


def _line(error: BaseException) -> str | None:
    """Return the line for an error that the user can act on; None for a bug."""
    if isinstance(error, ModuleNotFoundError | OSError):
        hint = disk_error(error) if isinstance(error, OSError) else missing_extra(error)
        return None if hint is None else str(hint)
    if isinstance(error, SystemExit):
        return f"code of a plugin called sys.exit({error.code!r}), which ended the command: remove the call"
    return str(error)
