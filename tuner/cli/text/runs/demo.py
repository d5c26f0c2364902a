"""The demonstration as text."""

from rich.console import Console

from tuner.commands.demo import Demo

QUESTION = "A network knows the digits 0 to 6; one user writes 7, 8 and 9. What should the device train?"


def print_demo(demo: Demo, console: Console) -> None:
    """Print the bundle, its predictions next to the true labels, what to try next, the answer, and paths of pages."""
    console.print(f"exported trial {demo.trial} to {demo.bundle}", highlight=False)
    for example in demo.examples:
        prediction = example.prediction
        predicted = f"predicted {prediction.label} ({100 * prediction.probability:.0f} %)"
        console.print(f"{example.file}: {predicted}, the true label is {example.label}", highlight=False)
    commands = f"tuner show {demo.run}; tuner predict {demo.bundle} {demo.examples[0].file}"
    console.print(f"try: {commands}", highlight=False)
    console.print(demo.answer, highlight=False)
    for name, page in demo.pages.items():
        console.print(f"{name}: {page}", highlight=False)
