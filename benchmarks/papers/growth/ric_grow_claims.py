"""What `benchmarks.papers.growth.ric_grow` says of its arms: the table, and the claims with their bounds."""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.lib.report import Claim, Row, interval
from benchmarks.papers.growth.arms import control, epochs_to, of, reached, said
from tuner.results.records.trial import Outcome

MNIST, LENET, MOBILENET = "MNIST", "lenet:lenet_1d", "mobilenet:mobilenet_1d"
FULL, RIC, OPT = "full", "RIC", "RIC's widths, Opt"
#: Of each network: the fractions of the full parameters and FLOPs that growth may reach.
CAPS = {MNIST: (1 / 20, 1 / 8), LENET: (1 / 20, 1.0), MOBILENET: (1 / 13, 1.0)}
#: The most accuracy lost, at the unfavourable end of the interval.
MOST_LOSS = {MNIST: 0.005, LENET: 0.010, MOBILENET: 0.020}
#: The most accuracy that full MobileNet-1D loses against full LeNet-1D, likewise.
SAME = 0.020
FASTER = 1.5
MOST_CONTROL = 0.01
#: The most accuracy that growing costs against the same widths from scratch.
OPT_LOSS = 0.005
PAPER = {
    MNIST: "MDLdroidLite Table 4: 1/20.6, 1/8.4, −0.04 points",
    LENET: "MDLdroidLite Table 4, sEMG: 1/40.7, −0.34 points",
    MOBILENET: "MDLdroidLite Table 5, sEMG: 1/13.4, −0.68 points",
}
#: Outcomes by the place of the seed or person, of every arm.
Arms = Mapping[str, Mapping[int, Outcome]]


def table(title: str, found: Arms, steps: int) -> list[Row]:
    """Return the rows of one network; every arm is compared with full size on the same seeds or people."""
    return [
        {"network": title, "arm": arm, **said(list(outcomes.values()), [found[FULL][one] for one in outcomes], steps)}
        for arm, outcomes in found.items()
    ]


def judged(network: str, title: str, found: Arms, steps: int) -> list[Claim]:
    """Return the claims of one network."""
    full, ric, opt = (list(found[arm].values()) for arm in (FULL, RIC, OPT))
    return [
        small(network, title, (full, ric, opt)),
        ends_well(title, opt, ric),
        of_speed(title, full, ric),
        of_control(title, ric, steps),
    ]


def lost(first: Sequence[Outcome], second: Sequence[Outcome]) -> tuple[float, float]:
    """Return the accuracy that the second arm loses against the first, and half its 95 % interval over the pairs."""
    pairs = zip(first, second, strict=True)
    return interval([one.values["local_accuracy"] - other.values["local_accuracy"] for one, other in pairs])


def points(loss: float, half: float, count: int) -> str:
    """Return a loss with its interval as text."""
    return f"{-100 * loss:+.2f} ± {100 * half:.2f} points (95 %, {count} pairs)"


def small(network: str, title: str, arms: tuple[Sequence[Outcome], ...]) -> Claim:
    """Compare RIC with the full network; the arms are full size, RIC and Opt."""
    full, ric, opt = arms
    parameters, flops = (of(full, name) / of(ric, name) for name in ("parameters", "flops"))
    loss, half = lost(full, ric)
    least, fewer = (round(1 / cap) for cap in CAPS[network])
    met = parameters >= least and flops >= fewer and loss + half <= MOST_LOSS[network]
    structure, _ = lost(full, opt)
    return Claim(
        f"{title}: within {100 * MOST_LOSS[network]:.1f} points of full size at {least}× fewer parameters"
        + (f" and {fewer}× fewer FLOPs" if fewer > 1 else ""),
        PAPER[network],
        f"{parameters:.1f}×, {flops:.1f}×, {points(loss, half, len(full))}",
        met,
        "" if met else f"the same widths from scratch: {-100 * structure:+.2f} points",
    )


def ends_well(title: str, opt: Sequence[Outcome], ric: Sequence[Outcome]) -> Claim:
    """Compare RIC with its own final widths, trained from scratch."""
    loss, half = lost(opt, ric)
    return Claim(
        f"{title}: growing costs at most 0.5 points against the final widths trained from scratch",
        "MDLdroidLite's arm _Opt",
        points(loss, half, len(ric)),
        loss + half <= OPT_LOSS,
    )


def same(lenet: Arms, mobilenet: Arms) -> Claim:
    """Compare the full networks, so that growth is measured against one that has learnt."""
    pairs = [(lenet[FULL][one], outcome) for one, outcome in mobilenet[FULL].items() if one in lenet[FULL]]
    first, second = zip(*pairs, strict=True)
    loss, half = lost(first, second)
    return Claim(
        f"full MobileNet-1D is within {100 * SAME:.0f} points of full LeNet-1D",
        "MDLdroidLite Tables 4 and 5, sEMG: 87.15 against 87.8",
        points(loss, half, len(pairs)),
        loss + half <= SAME,
    )


def learnt(full: Sequence[Outcome], ric: Sequence[Outcome]) -> str:
    """Say how well both networks fit what they were trained on: whether the small one has too few parameters."""
    at_full, small = (np.mean([one.epochs[-1]["loss"] for one in outcomes]) for outcomes in (full, ric))
    return f"RIC ends at a training loss of {small:.3f}, full size at {at_full:.3f}"


def of_speed(name: str, full: Sequence[Outcome], ric: Sequence[Outcome]) -> Claim:
    """Compare the times to the full network's accuracy less half a point."""
    slow, fast = reached(full, full), reached(ric, full)
    ratio = slow / fast if slow is not None and fast is not None else 0.0
    needed = [epochs_to(outcomes, full) for outcomes in (ric, full)]
    met = ratio >= FASTER
    return Claim(
        f"RIC trains {name} to the full network's accuracy less 0.5 points at least {FASTER}× as fast",
        "MDLdroidLite, text: 4.6× on LeNet with HAR",
        f"{ratio:.1f}×" if ratio else "not reached",
        met,
        "" if met else f"RIC needs {needed[0] or 'more than all'} epochs, full size {needed[1]}; {learnt(full, ric)}",
    )


def of_control(name: str, ric: Sequence[Outcome], batches: int) -> Claim:
    """Compare the controller's own time with training's."""
    share = control(ric)
    logged = [epoch for one in ric for epoch in one.epochs if "controller_seconds" in epoch]
    own, all_of = (
        1e3 * float(np.median([epoch[key] for epoch in logged])) for key in ("controller_seconds", "seconds")
    )
    met = share <= MOST_CONTROL
    return Claim(
        f"{name}: the controller takes at most {100 * MOST_CONTROL:.0f} % of training",
        "project's bound",
        f"{100 * share:.1f} %",
        met,
        ""
        if met
        else f"an epoch of {batches} batches takes {all_of:.0f} ms; saliencies and a decision take {own:.1f} ms",
    )
