"""The command ``tuner predict``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

from tuner.cli.options import Json, Memory, Time, document, note, print_line
from tuner.errors import TaskError, TunerError, UsageError
from tuner.printable import one_line

_FORMAT = Group("output", show=False, validator=mutually_exclusive)


def predict(
    bundle: Path,
    files: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    csv_output: Annotated[bool, Parameter(name="--csv", group=("Parameters", _FORMAT))] = False,
    timeline: bool = False,
    unknown: bool = False,
    time: Time = None,
    memory: Memory = None,
    json_output: Annotated[Json, Parameter(group=("Parameters", _FORMAT))] = False,
) -> None:
    """Predict the labels of files, and of the files in folders, with a bundle.

    Parameters
    ----------
    bundle
        A bundle's folder, or a zip of it.
    files
        Images, or .npy arrays for a model of arrays, or .npy recordings [channels, time] for a model of signals, or
        sounds (WAV, FLAC, OGG, MP3, AIFF) for a model of sounds; or folders of them.
    csv_output
        Print CSV: a header, then a line for each file as soon as it is predicted.
    timeline
        Of sounds, print a line for each second too; JSON has them always.
    unknown
        Answer "unknown" where a sample is less like its label than 95 % of your own samples are.
    """
    from tuner.bundle.archive import unpacked
    from tuner.cli.fence import guarded
    from tuner.cli.text.predictions import CSV_HEADER, Notes, format_prediction, prediction_as_csv
    from tuner.commands.bundles.predict import predict as answers_of
    from tuner.commands.limits import CommandLimits
    from tuner.reading import text_from
    from tuner.runtime import Personaliser

    predictions: list[dict[str, Any]] = []
    refused: list[dict[str, str]] = []
    others: dict[Path, str] = {}
    notes = Notes()
    with unpacked(bundle) as folder, guarded("predicting", CommandLimits.read(time, memory)):
        personaliser = Personaliser(folder, unknown=unknown)
        if timeline:
            _check_timeline(personaliser.bundle.input.kind, csv_output=csv_output)
        if csv_output:
            print_line(CSV_HEADER)
        for path, answer in answers_of(personaliser, files, others):
            if isinstance(answer, TunerError):
                if files == [path]:
                    raise answer
                refused.append({"file": str(path), "reason": str(answer)})
                note(f"warning: {one_line(str(answer))}")
                continue
            notes.add(path, answer.note)
            if json_output:
                predictions.append({"file": str(path), **answer.to_dict()})
            elif csv_output:
                print_line(prediction_as_csv(path, answer))
            else:
                print_line(format_prediction(path, answer, exits=personaliser.exits, timeline=timeline))
    notes.tell()
    _print_left_out(others)
    if json_output:
        left_out = [{"folder": text_from(folder), "kinds": kinds} for folder, kinds in others.items()]
        content = {"predictions": predictions, "refused": refused, "left_out": left_out}
        print_line(document("predictions-1", content))
    if refused:
        noun = "file was" if len(refused) == 1 else "files were"
        raise TaskError(f"{len(refused)} {noun} not predicted, as the lines above say: replace or remove them")


def _check_timeline(kind: str, *, csv_output: bool) -> None:
    from tuner.task.inputs import input_kind

    if csv_output or not input_kind(kind).timed:
        what = "a line of CSV has no seconds" if csv_output else f"the bundle takes {kind}"
        raise UsageError(f"--timeline shows the seconds of sounds, but {what}: leave it out")


def _print_left_out(kinds: Mapping[Path, str]) -> None:
    for folder, text in kinds.items():
        note(f"note: {one_line(str(folder))}: left out, of no kind that the model reads: {text}")
