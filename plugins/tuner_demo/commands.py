"""The command ``tuner demo``."""

from contextlib import closing
from typing import TYPE_CHECKING

from tuner.cli.options import Out, progress, stdout_console

if TYPE_CHECKING:
    from rich.console import Console

    from tuner_demo.digits import Demo

QUESTION = "A network knows the digits 0 to 6; one user writes 7, 8 and 9. What should the device train?"


def demo(*, out: Out = None) -> None:
    """Tune, export and predict on real handwritten digits; takes about half a minute and needs no data.

    Parameters
    ----------
    out
        Folder for the run and the bundle [default: a new folder in the current one].
    """
    from tuner.cli.text.run import print_run
    from tuner_demo.digits import export_and_predict, tune_digits

    console = stdout_console()
    console.print(QUESTION)
    result = tune_digits(out, progress())
    print_run(result, console)
    with closing(progress()) as listener:
        demonstrated = export_and_predict(result, listener)
    print_demo(demonstrated, console)


def print_demo(demo: "Demo", console: "Console") -> None:
    """Print the bundle, its predictions next to the true labels, what to try next, and paths of pages."""
    console.print(f"exported trial {demo.trial} to {demo.bundle}", highlight=False)
    for example in demo.examples:
        prediction = example.prediction
        predicted = f"predicted {prediction.label} ({100 * prediction.probability:.0f} %)"
        console.print(f"{example.file}: {predicted}, the true label is {example.label}", highlight=False)
    commands = f"tuner show {demo.run}; tuner predict {demo.bundle} {demo.examples[0].file}"
    console.print(f"try: {commands}", highlight=False)
    for name, page in demo.pages.items():
        console.print(f"{name}: {page}", highlight=False)
