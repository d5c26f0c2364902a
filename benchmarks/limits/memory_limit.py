"""A limit on memory that is kept by not running what breaks it: 40 trials of any depth under ``--memory 300MB``.

MobileNetV2 on the clothing task's photos, a few of them: the memory of a step depends on the batch and the cut, not on
how many photos there are. The search may train anything from the classifier to the whole network, with batches of 16
to 64, so that some of what it asks for does not fit. Every trial that ran is listed with the bytes that were
expected of it and those it took. With ``--out``, a run there goes on, and its trials count.
"""

import tempfile
from pathlib import Path

from benchmarks.lib.places import EXAMPLES
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import clothing, fewer_known
from tuner.commands.tune.run import run
from tuner.results.records.trial import TrialRecord

LIMIT_BYTES = 300_000_000
TRIALS, QUICK_TRIALS = 40, 5
TRAIN, VAL = 96, 32
SPACE = EXAMPLES / "clothing" / "any-depth.toml"


def main() -> None:
    """Run, print, write."""
    parser = benchmark_parser(__doc__, f"{QUICK_TRIALS} trials")
    parser.add_argument("--out", type=Path, help="the run's folder; a run there goes on")
    parser.add_argument("--trials", type=int, default=TRIALS)
    asked = parser.parse_args()
    trials = QUICK_TRIALS if asked.quick else asked.trials
    with tempfile.TemporaryDirectory() as folder:
        out = asked.out or Path(folder) / "run"
        made = run(
            fewer_known(clothing(160, TRAIN, VAL, held=True), slice(VAL), slice(VAL)),
            space=str(SPACE), memory=f"{LIMIT_BYTES}B", trials=trials, out=out, store=out.parent / "store",
            resume=out.exists(),
        )  # fmt: skip
    rows = [row(one) for one in made.records if one.same_as is None]
    finish("memory_limit", rows, claims(made.records, trials), asked.json)


def row(record: TrialRecord) -> Row:
    """Return what was expected of a trial and what it took."""
    plan = record.plan
    if plan is None or record.estimate is None:
        return {"trial": record.trial, "state": record.state, "reason": record.reason}
    taken = record.values.get("peak_bytes")
    loop = next((note.partition(":")[0] for note in record.notes if note.startswith("run by")), "")
    return {
        "trial": record.trial, "state": record.state, "blocks": plan.model.num_blocks - plan.split,
        "batch": plan.recipe.batch_size, "optimiser": plan.recipe.optimiser,
        "norms": "frozen" if plan.recipe.freeze_bn else "training", "expected MB": record.estimate.peak_bytes / 1e6,
        "taken MB": "" if taken is None else taken / 1e6, "loop": loop.removeprefix("run by "),
        "reason": record.reason,
    }  # fmt: skip


def claims(records: tuple[TrialRecord, ...], trials: int) -> list[Claim]:
    """Hold the trials against the limit."""
    ran = [one for one in records if one.state != "rejected" and one.same_as is None]
    killed = [one for one in ran if one.state == "killed"]
    failed = [one for one in ran if one.state == "failed"]
    refused = [one for one in records if one.state == "rejected" and "memory" in one.constraint]
    most = max((one.values["peak_bytes"] for one in ran if "peak_bytes" in one.values), default=0.0)
    limit = f"--memory {LIMIT_BYTES / 1e6:.0f}MB"
    return [
        Claim(
            f"no trial is killed for memory in {trials} trials under {limit}",
            "project's bound",
            f"{len(killed)} of {len(ran)} killed, {len(failed)} failed; the most that one took is {most / 1e6:.0f} MB",
            len(ran) >= trials and not killed and not failed,
            "; ".join(f"trial {one.trial}: {one.reason}" for one in killed + failed),
        ),
        Claim("plans that do not fit are refused unrun, by the planner's figure", "project's bound",
              f"{len(refused)} of {len(records)} plans", bool(refused)),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
