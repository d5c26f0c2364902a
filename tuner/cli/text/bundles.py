"""Bundles as text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.bundle.info import BundleInfo, TrainInfo
from tuner.bundle.scores import BYTES, SECONDS
from tuner.printable import printable
from tuner.results.scores.objectives import LEFT_OUT_ACCURACY, title_of
from tuner.targets.base import ACCURACY, BALANCED, ERROR, TOP
from tuner.units import format_bytes

if TYPE_CHECKING:
    from tuner.commands.bundles.card import Card

#: Names of classes that are listed; the others are counted.
MOST_CLASSES = 20
LOCAL, TEST, DIFFERENCE = "local_accuracy", "test_accuracy", "largest_logit_difference"
#: Words of accuracies that `tuner show BUNDLE` and JSON have, and that are no answer to how good a bundle is.
FURTHER = (TOP, BALANCED)


def format_bundle(folder: Path, info: BundleInfo, scored: Mapping[str, int], folds: int = 0, what: str = "") -> str:
    """Return `what` trained a new bundle, by default its plan, and its accuracies and the trial's, of tests first.

    Each accuracy is on a number of validation samples, `scored`; folds judged the trial, unless they are 0.
    """
    lines = [f"{folder}: {f'from a trial that {what}' if what else info.sentence}"]
    found = {name: one for name, one in info.scores.from_pixels.items() if not any(word in name for word in FURTHER)}
    for name, value in sorted(found.items(), key=lambda one: one[0] != TEST):
        shown, targets = title_of(name, info.targets), info.targets
        in_trial = info.scores.trial.get(name)
        over = f", over {folds} folds," if folds and name == LOCAL else ""
        if name == DIFFERENCE:
            lines.append(f"  checked: ONNX Runtime's outputs and PyTorch's differ by at most {value:.1g}")
            continue
        if not name.endswith(ACCURACY):
            is_score = in_trial is not None and name.endswith(ERROR)
            lines.append(f"  {shown} {value:.4g}" + (f"; in the trial{over} {in_trial:.4g}" if is_score else ""))
            continue
        trial = "" if in_trial is None else f"; in the trial{over} {targets.text(in_trial)}"
        lines.append(f"  {shown} {targets.text(value, scored.get(name, 0))}{trial}")
    lines += [f"  {line}" for line in _notes(info)]
    lines += [f"  {line}" for line in int8_lines(info)]
    if info.train is not None:
        licence = "; the licence of the global samples also applies to the bundle" if _known(info.train) else ""
        lines.append(f"  can be trained further without PyTorch: {_features(info.train)}{licence}")
        if info.train.left_out:
            lines.append(f"  it trains again by the task's loss, without {', '.join(info.train.left_out)}")
    return "\n".join(lines)


def _notes(info: BundleInfo) -> list[str]:
    """Return a line on what the local scores of a refitted bundle are of, and one on what was not measured."""
    lines, count = [], info.scores.refit_samples
    if count:
        title = title_of(LOCAL, info.targets)
        lines.append(
            f"{title}: measured before the refit, on {count:,} validation samples, which the refit then trained on"
        )
    if info.scores.test_left_out:
        lines.append(f"{title_of(TEST, info.targets)}: not measured, as the test samples were left out")
    return lines + [printable(line) for line in info.scores.doubts]


def int8_lines(info: BundleInfo) -> list[str]:
    """Return a table of a bundle in int8 next to the same one in float32; nothing of a bundle in float32."""
    int8, targets = info.int8, info.targets
    if int8 is None:
        return []
    rows = [("", "float32", "int8", "")]
    for name, after in int8.int8.items():
        before = int8.float32.get(name, 0.0)
        times = f"{after / before:.2f}×" if before else ""
        if name == SECONDS:
            rows.append(("a prediction", f"{1000 * before:.2f} ms", f"{1000 * after:.2f} ms", times))
        elif name == BYTES:
            rows.append(("the bundle", format_bytes(int(before)), format_bytes(int(after)), times))
        else:
            bound = int8.most_loss.get(name)
            most = "" if bound is None else f", at most {100 * bound:.1f} with 95 % confidence"
            loss = f"loss {100 * (before - after):.1f} points{most}"
            rows.append((title_of(name, targets), targets.text(before), targets.text(after), loss))
    widths = [*(max(len(row[column]) for row in rows) for column in range(3)), 0]
    return [
        f"int8: {int8.layers} of {int8.layers + int8.float_layers} layers before the tail; the tail is in float32",
        *("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
    ]


def format_card(card: "Card") -> str:
    """Return the card for people."""
    info = card.info
    origin = ""
    if info.run is not None:
        origin = f", from trial {info.run.trial} of a run with seed {info.run.seed}"
    elif info.parent is not None:
        origin = f", trained from the bundle {info.parent[:12]}"
    shape = " × ".join(map(str, info.input_shape))
    in_use = [] if card.round is None else [f"in use: round {card.round} of training on this device"]
    lines = [
        f"{card.folder}: {printable(info.name)}{origin}",
        f"made: {info.made or 'at an unknown time'}, by tuner {info.tuner or 'of an unknown version'}",
        *in_use,
        f"plan{'' if info.parent is None else ' of the first export'}: {printable(info.sentence)}",
        f"input: {info.input.kind}, {shape}; {info.loss}",
        f"{info.targets.noun}: {_classes(info.labels)}",
        *_scores(card),
        _sizes(card),
        *int8_lines(info),
        f"can be trained further without PyTorch: {_training(card)}",
    ]
    if info.plugins:
        lines.append(f"plugins: {', '.join(sorted(set(info.plugins.values())))}")
    holds = info.train is not None and _known(info.train)
    of = "the given model, and of the global samples it holds" if holds else "the given model"
    lines.append(f"licence: not recorded; that of {of} applies")
    return "\n".join(lines)


def _classes(labels: tuple[str, ...]) -> str:
    texts = map(printable, labels[:MOST_CLASSES])
    shown = ", ".join(f'"{text}"' if "," in text else text for text in texts)
    more = f", and {len(labels) - MOST_CLASSES} more" if len(labels) > MOST_CLASSES else ""
    return f"{len(labels)} ({shown}{more})"


def _scores(card: "Card") -> list[str]:
    """Return a line for each accuracy; after training on a device, those before and after it."""
    scores, targets, lines = card.info.scores, card.info.targets, []
    for name, value in scores.from_pixels.items():
        if not name.endswith((ACCURACY, ERROR)):
            continue
        low, high = card.intervals.get(name, (None, None))
        interval = "" if low is None or high is None else f" (95 % interval {100 * low:.0f}–{100 * high:.0f})"
        folded = name == LOCAL and card.folds > 0
        before = None if folded else scores.untouched.get(name)  # which is of the folds' samples, too
        title = title_of(name, targets)
        text = targets.text if name.endswith(ACCURACY) else "{:.3g}".format
        untouched = "" if before is None else f", untouched model {text(before)}"
        lines.append(f"{title}: {text(value)}{interval}{untouched}")
    if card.folds and LOCAL in scores.trial:
        before = scores.untouched.get(LOCAL)
        untouched = "" if before is None else f", untouched model {targets.text(before)}"
        of = targets.text(scores.trial[LOCAL], card.folded_samples)
        lines.append(f"{title_of(LOCAL, targets)} in the run, over {card.folds} folds: {of}{untouched}")
    name = LEFT_OUT_ACCURACY.name
    if name in scores.trial:
        of = targets.text(scores.trial[name], card.local_samples)
        over = f", over all {card.local_samples:,} local samples" if card.local_samples else ""
        lines.append(f"{title_of(name, targets)} in the run{over}: {of}")
    lines += _notes(card.info)
    if scores.device is not None:
        device = scores.device
        earlier, now = ("unknown" if one is None else targets.text(one) for one in (device.before, device.after))
        title = title_of("global_accuracy", targets)
        if device.before is not None or device.after is not None:
            lines.append(f"{title}: {now} after training on {device.samples} samples, {earlier} before")
    latency = scores.from_pixels.get("mean_latency_seconds")
    if latency is not None:
        lines.append(f"time of a prediction: {1000 * latency:.3g} ms, measured where it was exported")
    return lines


def _sizes(card: "Card") -> str:
    model = sum(size for name, size in card.bytes.items() if name == "model.onnx" or name.startswith("segments/"))
    parameters = "" if card.parameters is None else f", {card.parameters:,} parameters"
    return f"size: model {format_bytes(model)}{parameters}; whole bundle {format_bytes(sum(card.bytes.values()))}"


def _training(card: "Card") -> str:
    train = card.info.train
    if train is None:
        return "no; export with --trainable for that"
    what = "its exits, without labels" if train.exits is not None else f"its blocks from {train.cut} on, with labels"
    return f"yes, {what}; {_features(train)}"


def _features(train: TrainInfo) -> str:
    own = f"{train.own_samples:,} of your samples" if train.own_samples else ""
    others = f"{_known(train):,} global ones" if own else f"{_known(train):,} global samples"
    held = " and ".join(filter(None, (own, others if _known(train) or not own else "")))
    return f"{format_bytes(train.bytes)} more, with stored features of {held}"


def _known(train: TrainInfo) -> int:
    """Return the number of global samples whose features a bundle holds."""
    return train.replay_samples + train.check_samples
