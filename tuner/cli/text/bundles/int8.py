"""A bundle in int8 next to the same one in float32, as text."""

from tuner.bundle.info import BundleInfo
from tuner.bundle.scores import BYTES, SECONDS
from tuner.results.scores.objectives import title_of
from tuner.units import format_bytes


def int8_lines(info: BundleInfo) -> list[str]:
    """Return a table of both; nothing of a bundle in float32."""
    int8 = info.int8
    if int8 is None:
        return []
    layers = int8.layers + int8.float_layers
    rows = [("", "float32", "int8", "")]
    for name, after in int8.int8.items():
        before = int8.float32.get(name, 0.0)
        if name == SECONDS:
            texts, title = (f"{1000 * before:.2f} ms", f"{1000 * after:.2f} ms"), "a prediction"
        elif name == BYTES:
            texts, title = (format_bytes(int(before)), format_bytes(int(after))), "the bundle"
        else:
            texts, title = (info.targets.text(before), info.targets.text(after)), title_of(name, info.targets)
        if name not in {SECONDS, BYTES}:
            bound = int8.most_loss.get(name)
            most = "" if bound is None else f", at most {100 * bound:.1f} with 95 % confidence"
            rows.append((title, *texts, f"loss {100 * (before - after):.1f} points{most}"))
        else:
            rows.append((title, *texts, f"{after / before:.2f}×" if before else ""))
    widths = [*(max(len(row[column]) for row in rows) for column in range(3)), 0]
    return [
        f"int8: {int8.layers} of {layers} layers before the tail; the tail is in float32",
        *("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
    ]
