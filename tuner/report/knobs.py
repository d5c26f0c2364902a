"""How much each knob decides about a trial's accuracies."""

from collections.abc import Mapping

from tuner.report.drawing import BLUE, INK, MUTED, ORANGE, Picture, drawing, to_svg

#: As many knobs are shown.
MOST_KNOBS = 10
COLOURS = {"local_accuracy": BLUE, "global_accuracy": ORANGE}


def knob_picture(importance: Mapping[str, Mapping[str, float]], trials: int) -> Picture | None:
    """Return the importance of the knobs as bars; None where none is known.

    Args:
        importance: Shares of 1 by knob, by objective.
        trials: Number of trials that they are of.
    """
    known = {objective: shares for objective, shares in importance.items() if shares}
    if not known:
        return None
    knobs = {
        knob: max(shares.get(knob, 0.0) for shares in known.values()) for shares in known.values() for knob in shares
    }
    shown = sorted(knobs, key=lambda knob: knobs[knob])[-MOST_KNOBS:]
    name, title = "knobs", "Which knobs mattered"
    height = 0.8 / len(known)
    with drawing(height=1.0 + 0.34 * len(shown)) as (figure, axes):
        for number, (objective, shares) in enumerate(known.items()):
            places = [place + 0.4 - height * (number + 0.5) for place in range(len(shown))]
            widths = [100 * shares.get(knob, 0.0) for knob in shown]
            label = objective.replace("_", " ")
            axes.barh(places, widths, height=0.85 * height, color=COLOURS.get(objective, BLUE), label=label)
        axes.set_yticks(range(len(shown)), shown)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_xlabel("importance (%)")
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower center", ncols=2, labelcolor=MUTED)
        lists = (
            f"for {objective.replace('_', ' ')} "
            + ", ".join(f"{knob} {100 * share:.0f} %" for knob, share in list(shares.items())[:MOST_KNOBS])
            for objective, shares in known.items()
        )
        text = f"Importance of the knobs: {'; '.join(lists)}."
        caption = (
            f"How much each knob decides whether a trial is among the best quarter of {trials} trials on the same "
            "samples (PED-ANOVA). What a search did not vary cannot show."
        )
        return Picture(name, title, text, to_svg(figure, name, title, text), caption)
