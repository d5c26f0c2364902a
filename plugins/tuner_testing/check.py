"""Check whether a plugin obeys the rules, as its own tests would."""

import importlib
import importlib.util
import traceback
from dataclasses import dataclass
from pathlib import Path

from tuner.distribution import PLUGINS, entry_points
from tuner.errors import PluginError, nearest
from tuner.plugin.load.calls import IMPORT_SECONDS, OverdueError, limited
from tuner.plugin.load.finding import local_plugin
from tuner.reading import kind_of
from tuner_testing.models.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule, and whether a part of a plugin obeys it.

    Attributes:
        subject: What the rule is about: ``strategy bias``.
        verdict: ``held``, ``broken``, ``not applicable`` where there is nothing that it is about, or ``not checked``
            where another rule's breach is in the way.
        message: How it is broken, with the value and the way out, or why it does not apply; empty otherwise.
        place: Where the subject is written: ``mine.py, line 14``; empty where that is not known.
    """

    subject: str
    rule: str
    verdict: Verdict
    message: str
    place: str


@dataclass(frozen=True, slots=True)
class PluginReport:
    """Every rule for a plugin; `dataclasses.asdict` gives the JSON of ``tuner plugins check --json``."""

    plugin: str
    rules: tuple[CheckedRule, ...]
    held: int
    broken: int


def check_plugin(package: str) -> PluginReport:
    """Run all contracts on a plugin: a module, an installed plugin's name, a Python file, or a package's folder."""
    from tuner_testing.rules import rules_of

    name = _module_of(package)
    checked: list[CheckedRule] = []
    try:
        with limited(IMPORT_SECONDS):
            plugin = importlib.import_module(name) if name else local_plugin(package).load()
    except (Exception, SystemExit, OverdueError) as error:  # noqa: BLE001 - a plugin's import may raise anything
        called = name or local_plugin(package).name
        message = f"importing {called} must not raise, but it raised {type(error).__name__}: {error}{_raised_in(error)}"
        checked.append(CheckedRule("plugin", "it can be imported", "broken", " ".join(message.split()), ""))
    else:
        for rule in rules_of(plugin):
            verdict, message = rule.verdict()
            checked.append(CheckedRule(rule.subject, rule.text, verdict, message, rule.place))
    verdicts = [rule.verdict for rule in checked]
    return PluginReport(package, tuple(checked), verdicts.count("held"), verdicts.count("broken"))


def badge(report: PluginReport) -> str:
    """Return a picture for a README, as SVG, of what the kit held."""
    unchecked, rules = sum(rule.verdict == "not checked" for rule in report.rules), len(report.rules)
    failed = f"{report.broken} of {rules} broken" if report.broken else f"{unchecked} of {rules} not checked"
    is_whole = not report.broken and not unchecked
    said = f"{report.held} rules held" if is_whole else failed
    begin, colour = 62, "#2e7d32" if is_whole else "#b3261e"
    width = begin + 7 * len(said) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">'
        f"<title>tuner kit: {said}</title>"
        f'<rect width="{width}" height="20" rx="3" fill="#555"/>'
        f'<path fill="{colour}" d="M{begin} 0h{width - begin - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{begin}z"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="6" y="14">tuner kit</text><text x="{begin + 5}" y="14">{said}</text></g></svg>\n'
    )


def _raised_in(error: BaseException) -> str:
    """Return where an import raised, as `` (mine.py, line 14)``; a syntax error says it itself."""
    written = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if not frame.filename.startswith("<")]
    outside = [frame for frame in written if frame.filename != __file__]
    known = outside and not isinstance(error, SyntaxError)
    return f" ({Path(outside[-1].filename).name}, line {outside[-1].lineno})" if known else ""


def _module_of(package: str) -> str:
    """Return the name of a plugin's module; empty where a file or a package's folder is named."""
    points = {point.name: point.module for point in entry_points(PLUGINS)}
    alike = {name.replace("-", "_"): module for name, module in points.items()}
    if module := points.get(package) or alike.get(package.replace("-", "_")):
        return module
    if package.endswith(".py") and kind_of(package) != "file":
        raise PluginError(f"there is no file {package}: check the path")
    if package.endswith(".py") or kind_of(Path(package) / "__init__.py") == "file":
        return ""
    try:
        found = importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    inside = sorted(path.parent for path in Path(package).glob("*/__init__.py")) if kind_of(package) == "folder" else []
    if not found and inside:
        raise PluginError(f"{package} is a project, not a package: give {' or '.join(map(str, inside))}")
    if not found:
        raise PluginError(
            f"there is no module and no installed plugin {package!r}{nearest(package, points)}: give one of them, or "
            "the path of a .py file or of a package's folder"
        )
    return package
