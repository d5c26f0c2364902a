"""Run a notebook from its top, and write it with its outputs: ``python examples/execute.py NOTEBOOK OUT``.

What it writes goes into the current folder. Times, identifiers and other metadata that change from run to run are left
out, so that two versions of a notebook can be compared.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

#: Longest time that a cell may take.
TIMEOUT_SECONDS = 300
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def execute(notebook: Path, out: Path) -> None:
    """Run a notebook in the current folder.

    Args:
        notebook: The notebook to run.
        out: File to write it to, with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised an exception.
    """
    content = nbformat.read(notebook, as_version=4)
    NotebookClient(content, timeout=TIMEOUT_SECONDS, kernel_name="python3", coalesce_streams=True).execute()
    content.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(content.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = ESCAPES.sub("", output.text)
    nbformat.write(content, out)


if __name__ == "__main__":
    execute(Path(sys.argv[1]), Path(sys.argv[2]))
