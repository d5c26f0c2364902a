"""What `benchmarks.models.memory` claims of its rows, and why not."""

from benchmarks.lib.report import Claim, Row

#: Within 10 % or 16 MB.
SHARE, BYTES = 0.10, 16e6
MEMORY_BOUND, TIME_BOUND = 0.75, 1.15
BOUNDED = ("MobileNetV2", "VGG-11")


def claims(rows: list[Row]) -> list[Claim]:
    """Compare the peaks with the planned ones, and the planned executor with the eager loop."""
    off = {str(row["model"]): _off_bytes(row) for row in rows}
    far = [name for name, (here, allowed) in off.items() if here > allowed]
    worst = max(off, key=lambda name: off[name][0] / off[name][1])
    found = [
        Claim(
            "planned and measured peak within 10 % or 16 MB on every row",
            "bound of the project",
            f"{len(rows) - len(far)} of {len(rows)} rows; furthest {worst}, {off[worst][0] / 1e6:.1f} MB",
            "ratio",
            not far,
            f"outside: {', '.join(far)}" if far else "",
        )
    ]
    for row in rows:
        if row["model"] not in BOUNDED:
            continue
        for key, what, bound_ in (
            ("of eager", "the eager loop's peak", MEMORY_BOUND),
            ("of tuned eager", "the peak of the eager loop with the same settings of the allocator", MEMORY_BOUND),
            ("time of eager", "the eager loop's time", TIME_BOUND),
        ):
            share = float(str(row[key]))
            text = f"the planned executor takes ≤ {bound_} × {what}, {row['model']}"
            why = "" if share <= bound_ else _why(row)
            found.append(Claim(text, "bound of the project", f"{share:.2f}×", "ratio", share <= bound_, why))
    return found


def _why(row: Row) -> str:
    """Say what the system did in a step of each arm: memory that was given back is faulted in and zeroed again."""
    ours, theirs = (float(str(row[f"{arm} faults"])) for arm in ("planned", "eager"))
    mine, its = (float(str(row[f"{arm} system ms"])) for arm in ("planned", "eager"))
    return (
        f"much of what is freed goes back to the system: {ours:,.0f} pages are faulted in a step, {theirs:,.0f} by the "
        f"eager loop, and the system takes {mine:.0f} ms, {its:.0f} there; and activations are computed again"
    )


def _off_bytes(row: Row) -> tuple[float, float]:
    """Return how far the measured peak is from the planned one, and how far it may be."""
    expected, found = (1e6 * float(str(row[key])) for key in ("planned MB", "measured MB"))
    return abs(found - expected), max(BYTES, SHARE * expected)
