"""The command line: arguments in, one call, text or JSON out, and the error boundary."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Literal, TextIO, cast

from cyclopts import App, CycloptsError, UnknownOptionError

from tuner.cli.common import HELP, applied, split
from tuner.cli.options import EVERY, ReaderGoneError, print_line
from tuner.cli.settings import from_environment, from_project
from tuner.distribution import SWITCH, EntryPoint, installed_version, offered, switched_off
from tuner.errors import (
    DONE,
    INTERRUPTED,
    MISTAKE,
    USAGE,
    PluginError,
    TunerError,
    UsageError,
    disk_error,
    missing_extra,
)
from tuner.printable import one_line, printable, without_passwords, wrapped

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
    "plugins": "tuner.cli.plugins:plugins_app",
    "run": "tuner.cli.run:command",
    "show": "tuner.cli.show:show",
    "export": "tuner.cli.bundles.bundle:export",
    "predict": "tuner.cli.bundles.predict:predict",
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
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale may know ASCII only, and a file's name may be any bytes
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):  # `tuner watch` reads names of files there
        sys.stdin.reconfigure(errors="surrogateescape")
    sys.stderr = cast("TextIO", LastingStream(sys.stderr))
    return call(sys.argv[1:])


class LastingStream:
    """A stream whose reader may go away, as in ``tuner run TASK 2>&1 | head``: what is written later is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or lose it."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            lose(self._stream)
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, or lose it."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            lose(self._stream)


def lose(stream: TextIO) -> None:
    """Let all that is written to a stream from now on, and what it holds, go nowhere without an error."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_streams() -> None:
    """Give the program the standard streams that it was started without: else the next file would take their place."""
    closed = []
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if descriptor == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115
            closed.append(name)
    if "stdout" in closed:
        print("tuner: stdout is closed, and what is printed is lost: redirect it, as in > FILE", file=sys.stderr)


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code, as `tuner.errors` has them."""
    verbosity = 0
    try:
        common = split(arguments)
        verbosity = common.verbosity
        with applied(common):
            add_commands(common.rest)
            _run(common.rest)
    except CycloptsError as error:
        return _failed(USAGE, f"{' '.join(str(error).split())} See tuner --help.")
    except (TunerError, ModuleNotFoundError, OSError, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            lose(sys.stdout)  # rich ends so when nobody reads the help
            return DONE
        line = _line(error)
        if line is None:
            raise
        trace = "\n".join(getattr(error, "__notes__", ())).splitlines() if verbosity > 0 else ()
        code = error.exit_code if isinstance(error, TunerError) else MISTAKE
        return _failed(code, line, *map(printable, trace))
    except KeyboardInterrupt as interruption:
        lines = interruption.args or ("interrupted; what was finished is kept",)
        return _failed(INTERRUPTED, *map(printable, lines))
    except ReaderGoneError:
        lose(sys.stdout)
    return DONE


def _run(arguments: Sequence[str]) -> None:
    """Run a command; plugins are asked for an option that it lacks, and for help: looking for them takes its time."""
    if {"--help", "-h"} & {*arguments}:
        _with_options(arguments)
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except UnknownOptionError:
        if not _with_options(arguments):
            raise
        app(arguments, exit_on_error=False, print_error=False)


def _with_options(arguments: Sequence[str]) -> bool:
    from tuner.cli.added import add_options

    return add_options(app, arguments, _loaded)


def add_commands(arguments: Sequence[str] = ()) -> None:
    """Add the command that is called, of the core or of a plugin; where there is none of its name, all commands."""
    words = [word for word in arguments if not word.startswith("-")]
    named = words[0] if words else ""
    if "--version" in arguments:
        return
    if named in COMMANDS and not isinstance(_add(named, _own(named)), App):
        return
    points = offered("tuner.commands")
    is_known = named in COMMANDS or named in points
    for name in () if is_known else COMMANDS:
        _add(name, _own(name))
    for name, point in points.items():
        if not is_known or named == name.split()[0]:
            _add(name, _loaded(point))
    for name in (named, " ".join(words[:2])):
        if plugin := switched_off("tuner.commands", name):
            raise UsageError(f"{name} is a command of the plugin {plugin}, which is switched off: change {SWITCH}")


def _own(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(module), attribute)


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"the command {point.name!r} of a plugin cannot be imported ({reason}): update it") from error


def _add(name: str, command: Any) -> Any:
    """Add a command to the app, or, where its name has two words, to one of the app's groups; return it."""
    *group, own = name.split()
    parent = app[group[0]] if group else app
    if own not in parent:
        if isinstance(command, App):
            command.default_parameter = EVERY
        parent.command(command, name=own)
    return command


def _failed(code: int, line: str, *more: str) -> int:
    """Print why a command failed, and more lines, and return its exit code."""
    print(wrapped(f"tuner: {one_line(line)}", sys.stderr), *map(without_passwords, more), sep="\n", file=sys.stderr)
    return code


def _line(error: BaseException) -> str | None:
    """Return the line for an error that the user can act on; None for a bug."""
    if isinstance(error, ModuleNotFoundError | OSError):
        hint = disk_error(error) if isinstance(error, OSError) else missing_extra(error)
        return None if hint is None else str(hint)
    if isinstance(error, SystemExit):
        return f"code of a plugin called sys.exit({error.code!r}), which ended the command: remove the call"
    return str(error)
