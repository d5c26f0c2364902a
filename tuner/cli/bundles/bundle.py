"""The commands of a bundle: export, predict."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

from tuner.cli.options import Json, LocalPlugins, Memory, Time, document, note, print_line, progress
from tuner.errors import UsageError
from tuner.printable import one_line

_FORMAT = Group("output", show=False, validator=mutually_exclusive)


def export(
    run: str,
    out: Path,
    /,
    *,
    pick: str = "best",
    trainable: bool = False,
    replay: Annotated[str | None, Parameter(metavar="SIZE")] = None,
    int8: bool = False,
    int8_loss: float | None = None,
    drop_unreached: bool = False,
    web: bool = False,
    web_runtime: Path | None = None,
    task: str | None = None,
    plugin: LocalPlugins = (),
    artifacts: str | None = None,
    no_refit: bool = False,
    no_test: bool = False,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Write a trial of the Pareto front as a bundle, an ONNX model that runs without PyTorch.

    The trial is first trained once more, on all local samples: those that judged it are learned too.

    Parameters
    ----------
    run
        A run's folder, or the address of a study that several workers share.
    out
        The bundle's folder, which must be empty or not exist yet.
    pick
        best, knee, fastest, smallest, safest, a trial's number, or an expression; see docs/commands/export.md.
    trainable
        Let the bundle train again without PyTorch; it then holds features of global samples, and of your own.
    replay
        With --trainable: most bytes of features of your own samples, which rounds of training keep a tail from
        forgetting, or 0 for none [default: 2MB].
    int8
        Quantise the frozen blocks to int8: a smaller bundle that predicts faster. What that costs is measured.
    int8_loss
        With --int8: refuse if an accuracy falls by more than this many points [default: 1].
    drop_unreached
        With exits: drop all blocks behind the first exit by which every calibration sample has left.
    web
        Add a page that predicts, and with --trainable learns, in a browser; tuner serve OUT shows it.
    web_runtime
        With --web: the folder dist of the npm package onnxruntime-web, if tuner was installed without it.
    task
        The run's task, if its file has moved or the run was made on another device.
    artifacts
        Of a study: the folder, or s3://BUCKET/PREFIX, where its workers put the weights of the front.
    no_refit
        Export the trial's own weights, which have not learned the validation samples: nothing is trained.
    no_test
        Do not score test samples: the bundle then says that its accuracy on them was not measured.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.bundles.export import export as write
    from tuner.commands.limits import CommandLimits
    from tuner.commands.runs.source import run_to_export
    from tuner.results.views import baselines
    from tuner.results.views.pick import pick_trial

    if web_runtime is not None and not web:
        raise UsageError("--web-runtime is for the page: give --web too")
    limits = CommandLimits.read(time, memory)
    exporting = run_to_export(run, pick, artifacts)
    with exporting as result, closing(progress()) as listener, ended_by(limits.end):
        folder = write(
            result,
            out,
            pick,
            trainable=trainable,
            replay=replay,
            int8=int8,
            int8_loss=int8_loss,
            drop_unreached=drop_unreached,
            web=web_runtime or web,
            task=task,
            plugins=plugin,
            time=time,
            memory=memory,
            refit=not no_refit,
            test=not no_test,
            listener=listener,
            warn=_warn,
        )
        record = pick_trial(result, pick)
        verdicts, beaten = list(baselines.verdicts(result, [record.trial])), baselines.not_better_than(result, record)
    print_bundle(folder, json_output=json_output, not_better_than=beaten)
    for line in verdicts if not json_output else ():
        print_line(f"  {line}")
    if web and not json_output:
        print_line(f"  a page in {folder / 'web'}: tuner serve {folder}")


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
    from tuner.errors import TaskError, TunerError
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
                _warn(one_line(str(answer)))
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


def print_bundle(folder: Path, *, json_output: bool, not_better_than: Sequence[str] | None = None) -> None:
    """Print what a new bundle is; `not_better_than` names the baselines that it does not beat."""
    from tuner.cli.text.bundles import format_bundle
    from tuner.runtime import Bundle

    bundle = Bundle.open(folder)
    info = bundle.info
    if not json_output:
        plan = bundle.plan()
        task = plan.task
        scored = {"local_accuracy": task.local_val, "global_accuracy": task.global_val}
        print_line(format_bundle(folder, info, scored, plan.data.folds))
        return
    train = {} if info.train is None else {"train": info.train.to_dict()}
    int8 = {} if info.int8 is None else {"int8": info.int8.to_dict()}
    beaten = {} if not_better_than is None else {"not_better_than": list(not_better_than)}
    scores = {"scores": info.scores.to_dict(), **beaten}
    content = {"bundle": str(folder), "sentence": info.sentence, **scores, **train, **int8}
    print_line(document("export-1", content))


def _warn(message: str) -> None:
    note(f"warning: {message}")
