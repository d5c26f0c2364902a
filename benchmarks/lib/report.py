"""What every benchmark shares: claims beside the figures they answer to, a table, fair timing, one JSON file."""

import argparse
import gc
import json
import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence that this run shows to hold or not.

    Attributes:
        claim: The sentence, with its bound.
        reference: The paper's or rival's figure, or the bound's source.
        measured: What this run found.
        met: Whether the bound holds.
        why: Where it is not met: the measured reason.
    """

    claim: str
    reference: str
    measured: str
    met: bool
    why: str = ""


def benchmark_parser(description: str | None, quick: str = "at most 2 minutes") -> argparse.ArgumentParser:
    """Return what reads ``--quick`` and ``--json FILE``; a benchmark may add options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write rows and claims")
    return parser


def at_most(bound: float, claim: str, reference: str, values: npt.NDArray[np.float64], why: str = "") -> Claim:
    """Return the claim that a mean is at most a bound, at the upper end of its interval."""
    return Claim(claim, reference, points(values), sum(interval(values)) <= bound, why)


def at_least(bound: float, claim: str, reference: str, values: npt.NDArray[np.float64]) -> Claim:
    """Return the claim that a mean is at least a bound, at the lower end of its interval."""
    mean, half = interval(values)
    return Claim(claim, reference, points(values), mean - half >= bound)


def points(values: npt.NDArray[np.float64]) -> str:
    """Return the mean of shares and half of its interval, in points."""
    mean, half = interval(values)
    return f"{100 * mean:.1f} ± {100 * half:.1f} ({len(values)} pairs)"


def cheaper(
    claim: str, seconds: Mapping[str, Sequence[float]], slow: str, fast: str, bound: float, reference: str
) -> Claim:
    """Return the claim that steps of one arm are so many times cheaper, at the lower end of the interval."""
    times, low, _ = times_faster(seconds, slow, fast)
    measured = f"{times:.2f}×, at least {low:.2f}× (95 % of {len(seconds[slow])} paired steps)"
    return Claim(claim.format(f"{bound:g}"), reference, measured, low >= bound)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {"cpu": name, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def table(rows: Sequence[Row]) -> str:
    """Rows as aligned text; columns are the keys, in the order they first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def finish(name: str, rows: Sequence[Row], claims: Sequence[Claim], json_path: Path | None = None) -> None:
    """Print the rows, those with the same first column as one table, and the claims; write both to `json_path`."""
    print("\n\n".join(table(list(part)) for _, part in groupby(rows, key=lambda row: next(iter(row)))))
    for claim in claims:
        print(f"\n{'met' if claim.met else 'NOT MET'}: {claim.claim}")
        print(f"    reference {claim.reference}; measured {claim.measured}{'; ' + claim.why if claim.why else ''}")
    if json_path is not None:
        content: dict[str, Any] = {
            "name": name, "machine": machine(), "rows": [dict(row) for row in rows],
            "claims": [asdict(claim) for claim in claims],
        }  # fmt: skip
        json_path.write_text(json.dumps(content, indent=1, default=np.generic.item) + "\n")


def interleave(arms: Mapping[str, Callable[[], object]], repetitions: int, warmup: int = 2) -> dict[str, list[float]]:
    """Time every arm once a round, so that a busy moment of the machine meets all arms alike.

    Args:
        arms: What to run, by name.
        repetitions: Rounds that count.
        warmup: Rounds before them that do not.

    Returns:
        Seconds of each arm, one per counted round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    gc.collect()
    for repetition in range(-warmup, repetitions):
        for name, run in arms.items():
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            if repetition >= 0:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: Mapping[str, Sequence[float]], slow: str, fast: str) -> str:
    """Ratio of two arms' medians, the ratio of their minima beside it."""
    of_medians = median(seconds[slow]) / median(seconds[fast])
    return f"{of_medians:.2f}× of medians, {min(seconds[slow]) / min(seconds[fast]):.2f}× of minima"


def interval(differences: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean of paired differences, and half their 95 % interval by Student's t; infinite for a single one."""
    values = np.asarray(differences, np.float64)
    if len(values) == 1:
        return float(values[0]), math.inf
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def times_faster(seconds: Mapping[str, Sequence[float]], slow: str, fast: str) -> tuple[float, float, float]:
    """Return by how many times an arm is faster, and the ends of the 95 % interval: of the paired rounds' ratios.

    Args:
        seconds: Of each arm, from `interleave`.
        slow: Name of the arm that takes longer.
        fast: Name of the other.
    """
    middle, half = interval(np.log(seconds[slow]) - np.log(seconds[fast]))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the median, by the ranks of the values, which need no distribution."""
    found: Any = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    return float(found.low), float(found.high)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
