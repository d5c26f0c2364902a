"""Faults put into our own plugins, one at a time: the host, the kit or a trial names each, and none is silently wrong.

Every fault of `benchmarks.mutants.changes` is put into every plugin of `NAMES` that has a place for it, into one. The
mutant is loaded as an installed plugin is, in a process of its own. First the host may refuse it; then the rules of
`tuner plugins check` are checked up to the first that is broken; at last it is trained on the digits. One that is named
by none of them is silently wrong, unless it is no fault: `EQUIVALENT` says why. The table has the words of each.

They come in an order drawn with a seed, so that the first ones are a random share. With `--keep FILE` a call goes on
where the one before it was cut; delete a line of the file to judge that mutant again.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.mutants.changes import Mutant, mutants

FOLDER = Path(__file__).parents[2] / "plugins"
NAMES = (
    *("bias", "branch", "cache", "closed_form", "coreset", "distill", "exits"),
    *("freeze", "gdm", "growth", "lora", "resolution", "sparse"),
)
#: A rule that runs a process of its own, and the fault that it is checked of.
SLOW_RULE, ABOUT = "importing it is quick and loads no tensor library", "a tensor library is imported"
#: Seconds of the processor after which a mutant is given up, and all seconds.
PATIENCE, LAST = 300, 3600
#: The quick arm takes one of so many mutants.
QUICK = 12
#: Of the order of the mutants.
SEED = 0
NAMED = ("host", "kit", "trial")
KEYS = ("plugin", "fault", "line", "named by", "words")
#: Mutants that are no faults, by plugin and fault, and why.
EQUIVALENT: Mapping[tuple[str, str], str] = {
    ("growth", "a lowering copies the tail"): "it returns layers of its own anyway, and a copy of them is the same",
    ("growth", "a lowering scales weights"): "it is put where all weights are drawn anew",
    ("branch", "a lowering copies the tail"): "its tails and gate are its own, and none of our edits comes after it",
    ("closed_form", "nothing is frozen"): "a head that is solved for takes no gradient: the same is trained and saved",
}


class Place(NamedTuple):
    """A mutant, and the file of the plugin that it is in."""

    plugin: str
    file: str
    mutant: Mutant


def places() -> Iterator[Place]:
    """Yield a mutant of each of our plugins for each fault that it can have; of its traits, each."""
    for name in NAMES:
        seen = set[str]()
        folder = FOLDER / f"tuner_{name}"
        for path in sorted(folder.rglob("*.py"), key=lambda path: (path.name != "__init__.py", path)):
            for mutant in mutants(path.read_text(encoding="utf-8")):
                if mutant.fault not in seen:
                    seen.add(mutant.fault)
                    yield Place(name, str(path.relative_to(FOLDER)), mutant)


def kept_rows(file: Path | None) -> dict[tuple[str, str, int], Row]:
    """Return the rows of a file of earlier calls, by what they are about."""
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
    return {tuple(row[key] for key in KEYS[:3]): row for row in map(json.loads, lines)}


def judged(place: Place) -> tuple[str, str]:
    """Return who names a mutant, one of `NAMED` or nobody, and the words; judged in a process of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        signal.alarm(LAST)
        with tempfile.TemporaryDirectory() as folder:
            found = _judged(place, Path(folder))
        os.write(theirs, json.dumps(found).encode()[:4000])
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return tuple(json.loads(said)) if said else ("nobody", f"the process ended with {status}")


def _judged(place: Place, folder: Path) -> tuple[str, str]:
    package = place.file.partition("/")[0]
    shutil.copytree(FOLDER / package, folder / package)
    (folder / place.file).write_text(place.mutant.source, encoding="utf-8")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    from tuner.plugin.core import build_host
    from tuner_testing.rules import rules_of

    host = build_host()
    if host.refused or host.problems:
        return "host", (host.refused[0].refused if host.refused else host.problems[0])
    plugin = importlib.import_module(package)
    for rule in rules_of(plugin):
        if rule.text == SLOW_RULE and place.mutant.fault != ABOUT:
            continue
        verdict, message = rule.verdict()
        if verdict == "broken":
            return "kit", f"{rule.text}: {message}"
    reason = _trained(plugin, folder)
    return ("trial", reason) if reason else ("nobody", "")


def _trained(plugin: object, folder: Path) -> str:
    """Return why plans of a plugin's strategies cannot be trained on the digits; nothing where they can."""
    from tuner.backends.base import Trial
    from tuner.backends.torch.backend import TorchBackend
    from tuner.errors import TunerError
    from tuner.plan.trial import normal_form
    from tuner.plugin.compose import StrategyError, compose
    from tuner.plugin.core import build_host
    from tuner.plugin.sources import preferred_values
    from tuner.store.store import Store
    from tuner.task.builtin import digits
    from tuner.task.info import task_info
    from tuner_testing.models.hosting import offered_by

    task = replace(digits(), model=replace(digits().model, pretrain=None))
    host = build_host()
    base = [host.strategies[name] for name in ("gdm", "freeze", "recipe", "runtime")]
    for number, strategy in enumerate(offered_by(plugin, "strategies")):
        session = TorchBackend().open(task, host.extensions("torch"))
        others = [one for one in base if one.stage is not strategy.stage or one.name == strategy.name]
        values = {"freeze.trainable_blocks": 3, "recipe.epochs": 1, "recipe.batch_size": 64}
        for at, anchor in enumerate((*strategy.anchors(session.model), {})[:1]):
            wanted = preferred_values({**anchor, **values})
            own = [strategy] if strategy.name not in {one.name for one in others} else []
            try:
                plan = compose([*others, *own], wanted, session.model, task_info(task)).plan
                weights = folder / f"trial-{number}-{at}" / "weights"
                session.train(Trial(normal_form(plan), 1, Store(folder / "store"), weights))
            except (TunerError, StrategyError) as error:
                return str(error)
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge every mutant; print who named how many of each fault."""
    parser = benchmark_parser(__doc__, f"one of {QUICK} mutants: five minutes")
    parser.add_argument("--plugin", choices=NAMES, help="mutants of this plugin alone")
    parser.add_argument("--part", default="0/1", help="the mutants K of every N, as K/N")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="rows of this and earlier calls")
    asked = parser.parse_args(arguments)
    part, of = (int(number) for number in asked.part.split("/"))
    import torch

    import tuner.backends.torch.session  # noqa: F401 - once, in the process that the others are copies of
    import tuner_testing.rules
    from tuner_testing.models import edited_plans  # noqa: F401 - likewise
    from tuner_testing.models.lowered import made_up_model

    made_up_model()
    torch.set_num_threads(1)
    tuner_testing.rules.RULE_SECONDS = LAST  # a busy machine is no fault
    every = [place for place in places() if asked.plugin in {None, place.plugin}]
    random.Random(SEED).shuffle(every)
    chosen = every[: len(every) // QUICK if asked.quick else None][part::of]
    rows, counts, kept = list[Row](), Counter[str](), kept_rows(asked.keep)
    for place in chosen:
        about = place.plugin, place.mutant.fault, place.mutant.line
        if about not in kept:
            kept[about] = dict(zip(KEYS, (*about, *judged(place)), strict=True))
            if asked.keep is not None:
                with asked.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(kept[about]) + "\n")
        reason = EQUIVALENT.get(about[:2], "") if kept[about]["named by"] == "nobody" else ""
        row = {**kept[about], **({"named by": "no fault", "words": reason} if reason else {})}
        counts[str(row["named by"])] += 1
        rows.append({**row, "words": " ".join(str(row["words"]).split())[:110]})
        print(*rows[-1].values(), sep=" | ", flush=True)
    faults = len(chosen) - counts["no fault"]
    named = sum(counts[who] for who in NAMED)
    share = f"{named} of {faults} ({100 * named / max(1, faults):.1f} %): {dict(counts)}"
    claims = [
        Claim("at least 95 % of seeded faults are named", "issue 45, goal", share, named >= 0.95 * faults),
        Claim("no seeded fault is silently wrong", "issue 45, goal", f"{counts['nobody']}", counts["nobody"] == 0),
    ]
    finish("mutants", rows, claims, asked.json)


if __name__ == "__main__":
    main()
