"""A bundle's card as text."""

from tuner.cli.text.bundles.int8 import int8_lines
from tuner.commands.bundles.card import Card
from tuner.printable import printable
from tuner.results.scores.objectives import title_of
from tuner.targets.base import ACCURACY, ERROR
from tuner.units import format_bytes

#: Names of classes that are listed; the others are counted.
MOST_CLASSES = 20
LOCAL = "local_accuracy"


def format_card(card: Card) -> str:
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
        f"plan: {printable(info.sentence)}",
        f"input: {info.input.kind}, {shape}; {info.loss}",
        f"{info.targets.noun}: {_classes(info.labels)}",
        *_scores(card),
        *_sizes(card),
        *int8_lines(info),
        f"trains again without PyTorch: {_training(card)}",
    ]
    if info.plugins:
        lines.append(f"plugins: {', '.join(sorted(set(info.plugins.values())))}")
    lines.append(f"licence: {_licence(card)}")
    return "\n".join(lines)


def _classes(labels: tuple[str, ...]) -> str:
    shown = ", ".join(printable(label) for label in labels[:MOST_CLASSES])
    more = f", and {len(labels) - MOST_CLASSES} more" if len(labels) > MOST_CLASSES else ""
    return f"{len(labels)} ({shown}{more})"


def _scores(card: Card) -> list[str]:
    """Return a line for each accuracy; after training on a device, those before and after it."""
    scores = card.info.scores
    lines = []
    targets = card.info.targets
    for name, value in scores.from_pixels.items():
        if not name.endswith((ACCURACY, ERROR)):
            continue
        low, high = card.intervals.get(name, (None, None))
        interval = "" if low is None or high is None else f" (95 % interval {100 * low:.0f}–{100 * high:.0f})"
        folded = name == LOCAL and card.folds > 0
        before = None if folded else scores.untouched.get(name)  # which is of the folds' samples, too
        title = title_of(name, targets)
        text = targets.text if name.endswith(ACCURACY) else _number
        untouched = "" if before is None else f", untouched model {text(before)}"
        lines.append(f"{title}: {text(value)}{interval}{untouched}")
    if card.folds and LOCAL in scores.trial:
        before = scores.untouched.get(LOCAL)
        untouched = "" if before is None else f", untouched model {targets.text(before)}"
        of = targets.text(scores.trial[LOCAL], card.folded_samples)
        lines.append(f"{title_of(LOCAL, targets)} in the run, over {card.folds} folds: {of}{untouched}")
    if scores.device is not None:
        device = scores.device
        earlier, now = ("unknown" if one is None else targets.text(one) for one in (device.before, device.after))
        title = title_of("global_accuracy", targets)
        lines.append(f"{title}: {now} after training on {device.samples} samples, {earlier} before")
    latency = scores.from_pixels.get("mean_latency_seconds")
    if latency is not None:
        lines.append(f"time of a prediction: {1000 * latency:.3g} ms, measured where it was exported")
    return lines


def _number(value: float) -> str:
    return f"{value:.3g}"


def _sizes(card: Card) -> list[str]:
    model = sum(size for name, size in card.bytes.items() if name == "model.onnx" or name.startswith("segments/"))
    parameters = "" if card.parameters is None else f", {card.parameters:,} parameters"
    return [f"size: model {format_bytes(model)}{parameters}; whole bundle {format_bytes(sum(card.bytes.values()))}"]


def _training(card: Card) -> str:
    train = card.info.train
    if train is None:
        return "no; export with --trainable for that"
    what = "its exits, without labels" if train.exits is not None else f"its blocks from {train.cut} on, with labels"
    samples = train.replay_samples + train.check_samples
    return f"yes, {what}; {format_bytes(train.bytes)}, with features of {samples:,} global samples"


def _licence(card: Card) -> str:
    of = "the given model" if card.info.train is None else "the given model, and of the global samples it holds"
    return f"not recorded; that of {of} applies"
