"""A run as one HTML page that needs no network, no script and no font."""

from collections.abc import Iterable
from importlib.resources import files

from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.views.answer import answer
from tuner_report import first, sections
from tuner_report.charts.course import growth_picture, learning_picture, phases_picture
from tuner_report.charts.drawing import LeftOut
from tuner_report.fronts import cost_pictures, front_pictures, unmarked
from tuner_report.html import note, pictures, section, tag, text
from tuner_report.sections import Findings

#: The page asks for nothing elsewhere: with this a browser refuses it, whatever is in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(run: Run, findings: Findings, winner: TrialRecord | None) -> str:
    """Return a run as HTML.

    Args:
        run: To show.
        findings: What is shown besides.
        winner: The trial that the answer is about; None where the front is empty.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    course = [growth_picture(run), phases_picture(run), learning_picture(run)]
    fronts = [*front_pictures(run), *cost_pictures(run)]
    knobs, wrong = sections.knobs(findings), first.photos(run, findings)
    strategies, memory, refused = sections.strategies(run), sections.memory(winner, findings), sections.refused(run)
    left_out = [wrong, *fronts, unmarked(run), *course, strategies, knobs, memory, refused]
    parts = [
        _head(run, winner),
        section("In short", first.in_short(run, winner)),
        section(f"{run.info.task.noun.capitalize()} it still gets wrong", _text(wrong)),
        section("What next", first.following(run, findings)),
        '<h2 class="part">In detail</h2>',
        section("What was asked", sections.asked(run)),
        section("The front", sections.front(run, fronts)),
        section("The search", pictures(course), sections.spent(run)),
        section("Which strategies paid", _text(strategies)),
        section("Class by class", sections.classes(run, winner)),
        section(sections.KNOBS, pictures([knobs])),
        section("Memory of a training step", _text(memory)),
        section("What was refused, and why", _text(refused)),
        _left_out([one for one in left_out if isinstance(one, LeftOut)]),
        "<footer>Made by tuner. This file is complete: it loads nothing, and nothing in it was sent anywhere.</footer>",
    ]
    style = files("tuner_report").joinpath("style.css").read_text(encoding="utf-8")
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{text(run.info.task_name)}: report</title>\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _head(run: Run, winner: TrialRecord | None) -> str:
    """Return the answer, and the winner's values."""
    of = f"{run.info.task_name} · {run.info.space_name} · seed {run.info.config.seed}"
    shown = "" if winner is None else sections.facts(run, winner)
    return f"<header>{tag('p', text(of), 'of')}{tag('h1', text(answer(run)))}{shown}</header>"


def _text(part: str | LeftOut) -> str:
    """Return a part, or nothing where it was left out."""
    return part if isinstance(part, str) else ""


def _left_out(parts: Iterable[LeftOut]) -> str:
    """Say what is not on the page, and why."""
    named = "; ".join(f"{one.title} ({one.why.rstrip('.')})" for one in parts)
    return note(f"Left out, as there is nothing to say: {named}.") if named else ""
