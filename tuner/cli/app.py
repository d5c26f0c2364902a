"""The command line: arguments in, one call, text or JSON out, and the error boundary."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Literal

from cyclopts import App, CycloptsError

from tuner.cli.common import HELP, applied, split
from tuner.cli.options import EVERY, ReaderGoneError, print_line
from tuner.cli.settings import from_environment, from_project
from tuner.distribution import installed_version
from tuner.errors import TunerError, UsageError, disk_error, missing_extra
from tuner.printable import one_line, printable, wrapped

DONE, MISTAKE, USAGE, INTERRUPTED = 0, 1, 2, 130
app = App(
    name="tuner",
    help="Tune how a model is personalised on this device, within a time and memory budget.",
    help_epilogue=HELP,
    version=installed_version,
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `call` reports it in one line
    config=[from_environment, from_project],
    default_parameter=EVERY,
    help_format="plaintext",  # markdown would cost a quarter of the time that --help takes
)


#: The core's own commands: a function or an app, which is imported when it is called, or to list all.
COMMANDS: Mapping[str, str] = {
    "bundle": "tuner.cli.bundles.conformance:bundle_app",
    "store": "tuner.cli.bundles.store:store_app",
    "prior": "tuner.cli.runs.prior:prior_app",
    "labels": "tuner.cli.tasks.labels:labels_app",
    "plugins": "tuner.cli.plugins:plugins_app",
    "init": "tuner.cli.tasks.init:init",
    "run": "tuner.cli.run:run",
    "show": "tuner.cli.runs.show:show",
    "diff": "tuner.cli.runs.show:diff",
    "report": "tuner.cli.runs.report:report",
    "dashboard": "tuner.cli.runs.dashboard:dashboard",
    "export": "tuner.cli.bundles.bundle:export",
    "apply": "tuner.cli.bundles.bundle:apply",
    "predict": "tuner.cli.bundles.bundle:predict",
    "serve": "tuner.cli.bundles.serve:serve",
    "describe": "tuner.cli.tasks.describe:describe",
    "demo": "tuner.cli.run:demo",
    "forget": "tuner.cli.bundles.store:forget",
    "watch": "tuner.cli.bundles.service:watch",
    "status": "tuner.cli.bundles.service:status",
    "rollback": "tuner.cli.bundles.service:rollback",
}


@app.command(name="--install-completion")
def install_completion(*, shell: Literal["bash", "zsh", "fish"] | None = None) -> None:
    """Install completion of commands and options for a shell: a script, and a line in its start file that loads it.

    Parameters
    ----------
    shell
        The shell [default: the one that runs].
    """
    from cyclopts.completion.detect import ShellDetectionError

    try:
        script = app.install_completion(shell=shell)
    except ShellDetectionError:
        raise UsageError("the shell cannot be found out: give --shell bash, zsh or fish") from None
    print_line(f"{script} is installed: start a new shell")


def run_program() -> int:
    """Run the command line on the program's arguments and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale may know ASCII only, and a file's name may be any bytes
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):  # `tuner watch` reads names of files there
        sys.stdin.reconfigure(errors="surrogateescape")
    return call(sys.argv[1:])


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 the user's mistake or a limit, 2 usage, 130 interrupted."""
    try:
        common = split(arguments)
        with applied(common):
            add_commands(common.rest)
            app(common.rest, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _failed(USAGE, f"{' '.join(str(error).split())} See tuner --help.")
    except UsageError as error:
        return _failed(USAGE, str(error))
    except (TunerError, ModuleNotFoundError, OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            _reader_gone()  # rich ends so when nobody reads the help
            return DONE
        line = _line(error)
        if line is None:
            raise
        trace = "\n".join(getattr(error, "__notes__", ())).splitlines() if common.verbosity > 0 else ()
        return _failed(MISTAKE, line, *map(printable, trace))
    except KeyboardInterrupt as interruption:
        commands = (f"to continue:\n{printable(command)}" for command in interruption.args)
        return _failed(INTERRUPTED, "interrupted; what was finished is kept", *commands)
    except ReaderGoneError:
        _reader_gone()
    return DONE


def add_commands(arguments: Sequence[str] = ()) -> None:
    """Add the command that is called; where it is not one of the core's own, all of them, and those of plugins."""
    named = next((word for word in arguments if not word.startswith("-")), "")
    if "--version" in arguments:
        return
    for name in [named] if named in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(":")
        _add(name, getattr(import_module(module), attribute))
    if named in COMMANDS:
        return
    from tuner.cli.plugin_commands import check_on, plugin_commands

    check_on(named)
    for name, load in plugin_commands():
        if named in {name, ""}:
            _add(name, load())


def _add(name: str, command: Any) -> None:
    if name in app:
        return
    if isinstance(command, App):
        command.default_parameter = EVERY
    app.command(command, name=name)


def _failed(code: int, line: str, *more: str) -> int:
    """Print why a command failed, and more lines, and return its exit code."""
    print(wrapped(f"tuner: {one_line(line)}", sys.stderr), *more, sep="\n", file=sys.stderr)
    return code


def _reader_gone() -> None:
    with suppress(OSError):  # what is still buffered goes nowhere, without an error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(error: BaseException) -> str | None:
    """Return the line for an error that the user can act on; None for a bug."""
    if isinstance(error, ModuleNotFoundError | OSError):
        hint = disk_error(error) if isinstance(error, OSError) else missing_extra(error)
        return None if hint is None else str(hint)
    if isinstance(error, SystemExit):
        return f"code of a plugin called sys.exit({error.code!r}), which ended the command: remove the call"
    return str(error)
