"""The commands ``tuner plugins check``, ``tuner plugins new`` and ``tuner plugins pairs``."""

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, Out, document, print_line, progress
from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner_testing.check import PluginReport


def new(
    name: str,
    /,
    *,
    kind: Annotated[str, Parameter(name="--kind")] = "lowering",
    out: Out = None,
    json_output: Json = False,
) -> None:
    """Write a package with a plugin: its module, its test, a search space, a README and a CI file.

    Parameters
    ----------
    name
        Name of the plugin, such as sparse; the package is then tuner-sparse.
    kind
        What it adds: backend, data, loss, lowering (a strategy with an edit of the tail), objective, strategy or task.
    out
        Folder of the package, which must be empty or not exist yet [default: NAME].
    """
    from tuner_testing.scaffold import write_package

    folder, files = write_package(name, kind, out or Path(name))
    if json_output:
        print_line(document("plugins-new-1", {"folder": str(folder), "files": files}))
        return
    print_line(f"{folder}: {', '.join(files)}")
    print_line(
        f"next: cd {folder} && pip install --editable '.[test]' && pytest && tuner plugins check {name} --badge kit.svg"
    )


def check(
    package: str,
    /,
    *,
    badge: Annotated[Path | None, Parameter(name="--badge")] = None,
    json_output: Json = False,
) -> None:
    """Check whether a plugin obeys every rule; exit with 1 where one is broken.

    Parameters
    ----------
    package
        A module, the name of an installed plugin, a Python file, or a package's folder.
    badge
        Write a picture of the result to this file, as SVG, for a README.
    """
    from tuner_testing.check import badge as picture
    from tuner_testing.check import check_plugin

    with closing(progress()) as listener:
        listener.phase("checking the plugin, rule by rule")
        report = check_plugin(package)
    print_line(document("plugins-check-1", asdict(report)) if json_output else _as_text(report))
    if badge is not None:
        badge.write_text(picture(report), encoding="utf-8")
    if report.broken:
        raise TunerError(f"{package} breaks {report.broken} of {len(report.rules)} rules: correct what is listed above")


def pairs(*, json_output: Json = False) -> None:
    """Print which installed strategies and settings go together in one plan, and why others do not."""
    from tuner_testing.models.pairs import installed_pairs

    found = installed_pairs()
    if json_output:
        listed = [{"pair": pair, "reason": reason} for pair, reason in found.reasons().items()]
        print_line(document("plugins-pairs-1", {"pairs": listed}))
        return
    print_line(found.table())


def _as_text(report: "PluginReport") -> str:
    """Return each rule by what it is about; how it is broken, and where, below it."""
    lines, subject = [f"{report.plugin}:"], ""
    for rule in report.rules:
        if rule.subject != subject:
            subject = rule.subject
            lines.append(f"  {subject}{f' ({rule.place})' if rule.place else ''}")
        lines.append(f"    {rule.verdict:<14} {rule.rule}")
        lines += [f"      {rule.message}"] if rule.message else []
    inapplicable = sum(rule.verdict == "not applicable" for rule in report.rules)
    apart = f", {inapplicable} do not apply" if inapplicable else ""
    lines.append(f"{report.held} of {len(report.rules)} rules held{apart}")
    return "\n".join(lines)
