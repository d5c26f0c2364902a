"""Draw the pictures of `docs/concepts.md`: ``python docs/pictures/draw.py [FOLDER]``.

Each picture is a card of its own, light or dark as the reader's system is, and names the command that measured it.
"""
# ruff: noqa: E501, INP001, PLR2004 - a program, run by its path; its numbers are places in pictures

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

# fmt: off
WIDTH = 720
STYLE = """
.card{fill:#fff;stroke:#d0d7de} text{font:15px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
.small{font-size:13px;fill:#57606a} .bold{font-weight:600} .end{text-anchor:end} .mid{text-anchor:middle} .on{fill:#fff}
.a{fill:#0969da} .b{fill:#bc4c00} .soft{fill:#dbe5f1} .box{fill:#f6f8fa;stroke:#8c959f} .line{fill:none;stroke:#57606a;stroke-width:1.5}
.cut{stroke:#bc4c00;stroke-width:2.5;stroke-dasharray:7 4} .tip{fill:#57606a} .thin{stroke:#8c959f;fill:none}
.good{fill:#1a7f37} .la{stroke:#0969da;fill:none;stroke-width:2.5} .lb{stroke:#bc4c00;fill:none;stroke-width:2.5}
@media (prefers-color-scheme:dark){.card{fill:#161b22;stroke:#30363d} text{fill:#e6edf3} .small{fill:#9da7b3} .on{fill:#0d1117}
.a{fill:#58a6ff} .b{fill:#f0883e} .soft{fill:#2b3a50} .box{fill:#21262d;stroke:#6e7681} .line{stroke:#9da7b3} .cut,.lb{stroke:#f0883e}
.tip{fill:#9da7b3} .good{fill:#3fb950} .la{stroke:#58a6ff}}
"""
#: MFLOP of each block of MobileNetV2 at 160 pixels: tuner describe examples/clothing/task.toml --json
BLOCKS = (11.06, 10.24, 29.8, 26.27, 15.78, 11.21, 11.21, 7.72, 10.52, 10.52, 10.52, 12.98, 23.16, 23.16, 15.93, 15.79, 15.79, 23.47, 20.48, 0.54)
#: Local and global accuracy in %: trials of docs/example.md.
FRONT = {3: (85.9, 52.5), 4: (83.6, 52.8), 16: (86.5, 54.4)}
#: The one that is picked.
BEST = 16
#: The same, with 95 % intervals: (low, high) of local, of global.
INTERVALS = {3: (82, 89, 50, 55), 4: (79, 87, 51, 55), 16: (82, 90, 52, 57)}
#: Trials that were done, and the time that features took: docs/example.md.
TRIALS, FILLING = 17, "1m 08s"
#: Local and global accuracy in %, by what is done against forgetting: docs/notes/adapters.md.
FORGETTING = (
    ("nothing", 84.0, 10.9), ("distill alone", 84.1, 2.9), ("gdm, 1 %", 83.4, 48.5), ("gdm, 5 %", 83.3, 51.8), ("coreset, 5 %", 83.3, 52.6),
)

#: Name, full width, and width after each epoch of the hidden layers: growing.toml in docs/concepts.md.
WIDTHS = (
    ("first", 16, (2, 3, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6)),
    ("second", 32, (4, 6, 10, 10, 10, 13, 13, 15, 15, 15, 15, 15, 15)),
    ("third", 64, (9, 13, 21, 23, 25, 25, 26, 26, 26, 26, 26, 26, 26)),
)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text; `y` is its baseline."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box", round_: float = 6) -> str:
    """Return a rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}" class="{kind}"/>'


def label(x: float, y: float, width: float, *lines: str, height: float = 54, kind: str = "box") -> str:
    """Return a box with centred lines, the first of them bold."""
    top = y + height / 2 - 9 * (len(lines) - 1) + 5
    on = " on" if kind != "box" else ""
    return box(x, y, width, height, kind) + "".join(
        text(x + width / 2, top + 18 * at, line, f"mid {'bold' if at == 0 else 'small' if kind == 'box' else ''}{on}")
        for at, line in enumerate(lines)
    )


def path(*points: tuple[float, float], kind: str = "line", tip: bool = True) -> str:
    """Return a line through points, with an arrow's tip."""
    marker = ' marker-end="url(#tip)"' if tip else ""
    return f'<path d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"{marker}/>'


def picture(height: float, title: str, source: str, *parts: str) -> str:
    """Return a whole picture; `source` says what measured it."""
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<style>{STYLE}</style><defs>{tip}<path d="M0 0 8 4 0 8Z" class="tip"/></marker></defs>',
            box(0.5, 0.5, WIDTH - 1, height - 1, "card", 10),
            *parts,
            text(20, height - 14, source, "small"),
            "</svg>\n",
        ]
    )


def plan() -> str:
    """Blocks by cost, and the cut of a plan."""
    left, base, step = 30, 190, 33
    bars = [
        box(left + step * at, base - max(2.0, cost * 3.6), step - 6, max(2.0, cost * 3.6), "b" if at == 19 else "a", 2)
        for at, cost in enumerate(BLOCKS)
    ]
    numbers = [text(left + step * at + 13, base + 18, str(at), "mid small") for at in range(len(BLOCKS))]
    cut = left + step * 19 - 3
    return picture(
        306, "A plan divides the model at a cut", "MobileNetV2 at 160 pixels: tuner describe examples/clothing/task.toml",
        text(left, 34, "one bar a block, its height the FLOPs of the block", "small"),
        *bars, *numbers, path((cut, 50), (cut, 252), kind="cut", tip=False), text(cut - 8, 62, "cut", "end bold"),
        path((left, 226), (cut - 8, 226), tip=False), text((left + cut) / 2, 248, "prefix: blocks 0–18 are frozen, 305.6 MFLOP a photo", "mid"),
        text(left + step * 20, 270, "tail: block 19 trains, 0.5 MFLOP", "end bold"),
    )


def store() -> str:
    """The prefix runs once for each sample."""
    rows = [text(556, 62 + 40 * at, words, "") for at, words in enumerate(("trial 1, epochs 1–5", "trial 2, epochs 1–10", f"… {TRIALS - 2} more trials"))]
    return picture(
        250, "Stored features", f"{TRIALS} trials in 5 minutes, of which features took {FILLING}: docs/example.md has the command",
        label(20, 70, 110, "photos", "1,192 + global"), path((130, 97), (164, 97)),
        label(168, 70, 130, "prefix", "once per photo", kind="a"), path((298, 97), (332, 97)),
        label(336, 70, 120, "store", "8, 4, … bits"),
        *(path((456, 97), (506, 97), (506, y), (548, y)) for y in (57, 97, 137)), *rows,
        text(233, 150, "filling", "mid small"), text(396, 150, "one record a photo", "mid small"), text(700, 172, "each trains a tail on records", "end small"),
        text(20, 200, "Trials that share a cut share the records; other runs and other tasks of this model do, too.", ""),
    )


def budget() -> str:
    """Predict, guard, teach."""
    return picture(
        310, "Predict, guard, teach", "tuner run TASK --memory 300MB; expected and measured bytes: python -m benchmarks.limits.memory_limit",
        label(20, 100, 100, "plan"), path((120, 127), (150, 127)),
        label(154, 90, 170, "predict", "interval of bytes", "and seconds", height=74), path((324, 127), (416, 127)), text(370, 118, "fits", "mid small"),
        label(420, 90, 170, "guard", "memory every 10 ms,", "a deadline", height=74), path((590, 127), (620, 127)), label(624, 100, 76, "done"),
        path((239, 164), (239, 214)), text(247, 194, "does not fit: refused", "small"),
        path((505, 164), (505, 214)), text(513, 194, "over: killed", "small"),
        box(154, 218, 436, 44, "a"), text(372, 245, "teach: the search learns by how much it was over", "mid on"),
        path((154, 240), (70, 240), (70, 160)), text(78, 196, "next plan", "small"),
        text(20, 40, "A plan runs only if the upper end of its 90 % interval of memory fits."), text(20, 62, "What still breaks a limit costs one trial, not the study.", "small"),
    )


def front() -> str:
    """The front of docs/example.md."""

    def place(local: float, everywhere: float) -> tuple[float, float]:
        return 90 + (local - 74) * 36, 300 - (everywhere - 48) * 20

    parts = []
    for number, (local, everywhere) in FRONT.items():
        x, y = place(local, everywhere)
        low, high, bottom, top = INTERVALS[number]
        kind = "lb" if number == BEST else "thin"
        parts += [path(place(low, everywhere), place(high, everywhere), kind=kind, tip=False), path(place(local, bottom), place(local, top), kind=kind, tip=False)]
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{8 if number == BEST else 6}" class="{"b" if number == BEST else "a"}"/>')
        parts.append(text(x + 9, y - 8, f"{number}, the best" if number == BEST else str(number), "bold" if number == BEST else "small"))
    untouched = place(74, 52.6)[1]
    axes = [text(82, place(74, mark)[1] + 5, f"{mark} %", "end small") for mark in (48, 50, 52, 54, 56, 58)]
    axes += [text(place(mark, 48)[0], 320, f"{mark} %", "mid small") for mark in (76, 80, 84, 88)]
    return picture(
        376, "A Pareto front", "Command: docs/example.md; bars are 95 % intervals on 347 local and 2,000 global photos",
        text(20, 30, "global accuracy: the 200 classes that the model knew", "bold"), *axes, path((90, 60), (90, 300), (690, 300), tip=False),
        path((90, untouched), (690, untouched), kind="cut", tip=False), text(98, untouched - 7, "untouched model: local 0 %", "small"),
        *parts, text(690, 342, "local accuracy: the user's 10 classes", "end bold"),
        text(20, 50, "two of four objectives: the others are seconds of training and bytes", "small"),
    )


def exits() -> str:
    """Easy samples leave early."""
    return picture(
        270, "Early exits", "One trial of --space early-exits on the clothing photos: docs/example.md",
        label(20, 60, 90, "photo"), path((110, 87), (150, 87)), label(154, 60, 160, "first blocks", kind="a"), path((314, 87), (404, 87)),
        text(359, 78, "20 %", "mid small"), label(408, 60, 170, "the other blocks", "with later exits", kind="a"), path((578, 87), (612, 87)), label(616, 60, 84, "head"),
        path((234, 114), (234, 150)), label(154, 154, 160, "exit 0", "sure enough?"),
        path((314, 181), (408, 181)), text(361, 172, "80 %", "mid bold"), text(416, 178, "leave here: the rest"), text(416, 197, "of the model does not run"),
        text(20, 232, "200 MFLOP a prediction on average, instead of 306", "bold"), text(20, 36, "A sample leaves at the first exit whose confidence is above its threshold.", ""),
    )


def growth() -> str:
    """Widths of the hidden layers by epoch."""
    parts = []
    for at, (name, full, widths) in enumerate(WIDTHS):
        kind, points = ("la", "lb", "line")[at], [(70 + 40 * epoch, 250 - 5 * width) for epoch, width in enumerate(widths)]
        steps = [points[0]]
        for before, after in pairwise(points):
            steps += [(after[0], before[1]), after]
        parts += [path(*steps, kind=kind, tip=False), text(561, points[-1][1] + (13, -5, 5)[at], f"{name}: {widths[-1]} of {full}")]
    axes = [text(62, 255 - 5 * mark, str(mark), "end small") for mark in (0, 10, 20, 30)]
    axes += [text(70 + 40 * epoch, 268, str(epoch + 1), "mid small") for epoch in range(13)]
    return picture(
        316, "Widths that grow", "One trial on the digits, all four blocks trained from nothing: growing.toml in docs/concepts.md",
        text(20, 32, "width of each hidden layer, by epoch", "bold"), text(20, 54, "5,565 parameters at the end, of 26,090; 98 % local accuracy", "small"),
        path((70, 66), (70, 250), (560, 250), tip=False), *axes, *parts,
    )


def replay() -> str:
    """What is kept, by what is done against forgetting."""
    parts = []
    for at, (name, local, everywhere) in enumerate(FORGETTING):
        y = 66 + at * 44
        parts += [
            text(140, y + 20, name, "end"),
            box(152, y, local * 5, 15, "soft", 2), text(158 + local * 5, y + 13, f"{local} %", "small"),
            box(152, y + 17, everywhere * 5, 15, "a", 2),
            text(146 + everywhere * 5, y + 29, f"{everywhere} %", "end small on") if everywhere > 20 else text(158 + everywhere * 5, y + 29, f"{everywhere} %", "small"),
        ]
    mark = 152 + 52.6 * 5
    return picture(
        340, "Replay against forgetting", "The last two blocks, 8 epochs, three seeds: python -m benchmarks.models.adapters --part forgetting",
        box(152, 22, 14, 14, "soft", 2), text(172, 34, "local: the user's classes"), box(380, 22, 14, 14, "a", 2), text(400, 34, "global: what the model knew"),
        path((mark, 50), (mark, 290), kind="cut", tip=False), *parts, text(700, 306, "dashed: global accuracy of the untouched model, 52.6 %", "end small"),
    )


def rounds() -> str:
    """Predict, keep, train, judge."""
    return picture(
        330, "Rounds on the device", "tuner watch BUNDLE; whom rounds harm, with the gate and without: python -m benchmarks.models.users",
        label(20, 60, 130, "predict", "files as they come"), path((150, 87), (186, 87)),
        label(190, 60, 140, "keep", "the newest samples"), path((330, 87), (366, 87)),
        label(370, 60, 150, "due?", "100 new, or drift"), path((520, 87), (556, 87)),
        label(560, 60, 140, "idle, charging,", "cool?"), path((630, 114), (630, 156)),
        label(530, 160, 170, "train", "five folds, then all", kind="a"), path((530, 187), (464, 187)),
        label(270, 160, 190, "gate", "every sample judges once", kind="b"), path((270, 176), (150, 176), (150, 150), (85, 150), (85, 118)),
        text(214, 170, "accepted", "mid small"), path((365, 214), (365, 244)), label(270, 248, 190, "refused", "the old model stays", height=48),
        text(20, 36, "A new model must be better on samples it has not seen, and forget nothing for certain."),
        text(20, 216, "tuner rollback returns to", "small"), text(20, 234, "the round before", "small"),
    )


PICTURES: Sequence[Callable[[], str]] = (plan, store, budget, front, exits, growth, replay, rounds)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for draw in PICTURES:
        (folder / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")
