"""The command ``tuner export``."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tuner.cli.options import Json, LocalPlugins, Memory, Time, document, note, print_line, progress
from tuner.distribution import offered
from tuner.errors import UsageError

#: Entry points, by option, of what writes a bundle as source code into its folder.
SOURCES = "tuner.sources"


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
    c: Annotated[bool, Parameter(name="--c")] = False,
    tflite: Literal["float32", "int8", "uint8"] | None = None,
    device: Annotated[Literal["edgetpu", "micro"] | None, Parameter(name="--for")] = None,
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
        With --int8, or --tflite int8: refuse if an accuracy falls by more than this many points [default: 1].
    drop_unreached
        With exits: drop all blocks behind the first exit by which every calibration sample has left.
    web
        Add a page that predicts, and with --trainable learns, in a browser; tuner serve OUT shows it.
    web_runtime
        With --web: the folder dist of the npm package onnxruntime-web, if tuner was installed without it.
    c
        With --trainable and a head in closed form: add the head as C for small boards, OUT/c/head.h and head.c.
    tflite
        Add tflite/model.tflite with inputs and outputs of this type; int8 and uint8 quantise the network to int8.
    device
        With --tflite: list operators that a Coral's Edge TPU does not run; fail where TFLite Micro lacks one.
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
    if device is not None and tflite is None:
        raise UsageError(f"--for {device} is for a TFLite file: give --tflite int8 too")
    writer = offered(SOURCES).get("c") if c else None
    if c and (writer is None or not trainable):
        raise UsageError("--c writes a head that learns: give --trainable, and leave the plugin c switched on")
    limits = CommandLimits.read(time, memory)
    exporting = run_to_export(run, pick, artifacts)
    with exporting as result, closing(progress()) as listener, ended_by(limits.end):
        record = pick_trial(result, pick)
        if c:
            rule = f"--c is for heads in closed form of one class a sample, and trial {record.trial} has none"
            error = UsageError(f"{rule}: pick another trial, or leave out --c")
            result.info.targets.need_one_class(error)
            if not (record.plan and record.plan.traits.solves):
                raise error
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
            tflite=tflite,
            tflite_for=device,
            task=task,
            plugins=plugin,
            time=time,
            memory=memory,
            refit=not no_refit,
            test=not no_test,
            listener=listener,
            warn=_warn,
        )
        written = [] if writer is None else writer.load()(folder).lines
        verdicts, beaten = list(baselines.verdicts(result, [record.trial])), baselines.not_better_than(result, record)
    print_bundle(folder, json_output=json_output, not_better_than=beaten)
    for line in verdicts if not json_output else ():
        print_line(f"  {line}")
    if tflite and not json_output:
        print_line((folder / "tflite" / "report.txt").read_text(encoding="utf-8").rstrip())
    if web and not json_output:
        print_line(f"  a page in {folder / 'web'}: tuner serve {folder}")
    for line in written if not json_output else ():
        print_line(f"  {line}")


def print_bundle(folder: Path, *, json_output: bool, not_better_than: Sequence[str] | None = None) -> None:
    """Print what a new bundle is; `not_better_than` names the baselines that it does not beat."""
    from tuner.cli.text.bundles import format_bundle
    from tuner.plan.text import plain
    from tuner.runtime import Bundle

    bundle = Bundle.open(folder)
    info = bundle.info
    if not json_output:
        plan = bundle.plan()
        task = plan.task
        scored = {"local_accuracy": task.local_val, "global_accuracy": task.global_val}
        print_line(format_bundle(folder, info, scored, plan.data.folds, plain(plan)))
        return
    train = {} if info.train is None else {"train": info.train.to_dict()}
    int8 = {} if info.int8 is None else {"int8": info.int8.to_dict()}
    beaten = {} if not_better_than is None else {"not_better_than": list(not_better_than)}
    scores = {"scores": info.scores.to_dict(), **beaten}
    content = {"bundle": str(folder), "sentence": info.sentence, **scores, **train, **int8}
    print_line(document("export-1", content))


def _warn(message: str) -> None:
    note(f"warning: {message}")
