"""The check of a plugin as text."""

from tuner.commands.authors.check import PluginReport


def format_check(report: PluginReport) -> str:
    """Return each rule by what it is about; how it is broken, and where, below it."""
    lines, subject = [f"{report.plugin}:"], ""
    for rule in report.rules:
        if rule.subject != subject:
            subject = rule.subject
            lines.append(f"  {subject}{f' ({rule.place})' if rule.place else ''}")
        lines.append(f"    {rule.verdict:<12} {rule.rule}")
        lines += [f"      {rule.message}"] if rule.message else []
    lines.append(f"{report.held} of {len(report.rules)} rules held")
    return "\n".join(lines)
