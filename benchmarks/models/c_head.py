"""A head in C (`tuner export --c`): its bytes, the time of an answer and of learning a sample, and how far it drifts.

256 features and ten labels, of which a user has three: 180 made-up samples, and 229 of the others. Every kind of
scores is compiled as C99 without warnings. Answers are compared with the solution in Python as exported; and after
samples were added and forgotten a thousand times, with answers before. Times are of one processor, with floats of
32 bits.
"""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.arrays import Array
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings
from tuner_c.export import KINDS, SAMPLES, Head
from tuner_c.program import Action, program

FEATURES, LABELS, OWN, OTHERS = 256, 10, 180, 229
MOST_BYTES, MOST_MICROSECONDS, TOLERANCE = 300_000, 1000.0, 1e-4
CYCLES, TIMES = 1000, 200


def relative(found: Array, expected: Array) -> float:
    """Return the largest difference, as a share of the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main() -> None:
    """Print a row for each kind of scores, and the claims."""
    arguments = benchmark_parser(__doc__, "the same").parse_args()
    generator = np.random.default_rng(0)
    labels = np.concatenate([generator.integers(7, LABELS, OWN + SAMPLES), generator.integers(0, 7, OTHERS)])
    middles = generator.uniform(0, 1, (LABELS, FEATURES))[labels]
    features = np.maximum(middles + generator.normal(0, 0.7, middles.shape), 0).astype(np.float32)
    step, rows = step_of(features), np.split(np.arange(len(labels)), [OWN, OWN + SAMPLES])
    local, known = (Domain(coded(features[one], step), labels[one], LABELS, step) for one in rows[::2])
    given = LinearHead(generator.normal(0, 0.05, (LABELS, FEATURES)), np.zeros(LABELS))
    given.weight[7:] = 0.0
    answers, table = [Action.answer(row, TIMES) for row in features[::4]], list[Row]()
    for scores in KINDS:
        gate = "none" if scores == "joint" else "soft"
        head = Head(given, local, known, UnionSettings(ridge=30.0, gate_ridge=30.0, scores=scores, gate=gate))
        adds = [Action.add(int(labels[row]), features[row]) for row in rows[1]]
        turned_rows = np.resize(rows[1], CYCLES)
        cycle = [
            one
            for row in turned_rows
            for one in (Action.add(int(labels[row]), features[row]), Action.forget_sample(features[row]))
        ]
        with tempfile.TemporaryDirectory() as folder:
            head.write(Path(folder), [str(label) for label in range(LABELS)], SAMPLES)
            with program(Path(folder), FEATURES, LABELS) as run:
                first, learned, turned = run(answers), run([Action.init(), *adds]), run([*cycle, *answers])
        logits = np.stack([one.logits for one in first])
        table.append(
            {
                "scores": scores,
                "memory": learned[0].result,
                "tables in flash": head.table_bytes,
                "init": learned[0].microseconds,
                "answer": float(np.median([one.microseconds for one in first])),
                "add": float(np.mean([one.microseconds for one in learned[1:]])),
                "differs": relative(logits, head.solved.scores(features[::4])),
                "drift": relative(np.stack([one.logits for one in turned[len(cycle) :]]), logits),
            }
        )
    units = {"memory": "{:,} bytes", "tables in flash": "{:,} bytes", "init": "{:.0f} µs", "answer": "{:.1f} µs"}
    units |= {"add": "{:.0f} µs", "differs": "{:.1e}", "drift": "{:.1e}"}
    shown = [{name: units.get(name, "{}").format(value) for name, value in row.items()} for row in table]

    def most(name: str) -> float:
        return max(float(str(row[name])) for row in table)

    claims = [
        Claim(
            f"a head of {FEATURES} features and {LABELS} labels takes at most 300 kB of memory, and of flash",
            "issue 46",
            f"{most('memory') / 1000:.1f} kB and {most('tables in flash') / 1000:.1f} kB",
            max(most("memory"), most("tables in flash")) <= MOST_BYTES,
        ),
        Claim(
            "it answers, and learns a sample, in at most 1 ms",
            "issue 46",
            f"{most('answer'):.1f} µs and {most('add'):.0f} µs",
            max(most("answer"), most("add")) <= MOST_MICROSECONDS,
        ),
        Claim(
            f"logits differ from Python's by at most 1e-4 of the largest, and so little after {2 * CYCLES} changes",
            "issue 46",
            f"{most('differs'):.1e} and {most('drift'):.1e}",
            max(most("differs"), most("drift")) <= TOLERANCE,
        ),
    ]
    finish("c_head", shown, claims, arguments.json)


if __name__ == "__main__":
    main()
