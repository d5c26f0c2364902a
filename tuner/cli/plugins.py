"""The commands of plugins: plugins, plugins check."""

import json
from dataclasses import asdict

from cyclopts import App

from tuner.cli.options import Json, print_line
from tuner.errors import TunerError

plugins_app = App(name="plugins", help="List the installed plugins; check whether one obeys the rules.")


@plugins_app.default
def plugins(*, json_output: Json = False) -> None:
    """List the installed plugins, their origin, every knob, and which plugins were refused and why."""
    from tuner.cli.text.plugins import format_plugins
    from tuner.commands.plugins import plugin_list

    listing = plugin_list()
    print_line(json.dumps(asdict(listing)) if json_output else format_plugins(listing))


@plugins_app.command(name="check")
def check(package: str, /, *, json_output: Json = False) -> None:
    """Check whether a plugin obeys every rule; exit with 1 where one is broken.

    Parameters
    ----------
    package
        A module, the name of an installed plugin, or a Python file.
    """
    from tuner.cli.text.check import format_check
    from tuner.commands.check import check_plugin

    report = check_plugin(package)
    print_line(json.dumps(asdict(report)) if json_output else format_check(report))
    if report.broken:
        raise TunerError(f"{package} breaks {report.broken} of {len(report.rules)} rules: correct what is listed above")
