"""What is asked of a TFLite file, checked before anything is trained: an entry point of the group ``tuner.formats``."""

from importlib.util import find_spec
from typing import Any

from tuner.distribution import install_command
from tuner.errors import UnsupportedError, UsageError
from tuner.plan.parts import RuntimePlan
from tuner.plan.trial import TrialPlan

#: Numbers of a file: those of its input and its output; inside, both of the last are int8.
KINDS = ("float32", "int8", "uint8")
DEVICES = ("edgetpu", "micro")
EXTRA = "tflite"
_MOST_POINTS = 100


def asked(plan: TrialPlan, trial: int, kind: str, int8_loss: float | None, device: str | None = None) -> dict[str, Any]:
    """Return what `tuner_tflite.torch.write` is told of a trial's file.

    Args:
        plan: The trial's plan, in the precision of its bundle.
        trial: Its number.
        kind: One of `KINDS`.
        int8_loss: Points that an accuracy may fall by; None for what ``--int8`` allows.
        device: One of `DEVICES`, whose operators the file must have; None for any device with LiteRT.

    Raises:
        UsageError: There is no such kind, or the trial's bundle has exits, or is in int8 and the file in float32.
        UnsupportedError: LiteRT is not installed.
    """
    if kind not in KINDS:
        raise UsageError(f"--tflite must be {', '.join(KINDS)}, got {kind}")
    if device is not None and device not in DEVICES:
        raise UsageError(f"--for must be {' or '.join(DEVICES)}, got {device}")
    if device == DEVICES[0] and kind == KINDS[0]:
        raise UsageError(f"--for {device} is for whole numbers, got --tflite {kind}: give --tflite int8 or uint8")
    if plan.heads.exits:
        raise UsageError(f"--tflite is for one graph, and trial {trial} has exits: pick a trial without exits")
    if plan.runtime.precision == "int8" and (kind == KINDS[0] or device is not None):
        wanted = (
            "a bundle in float32" if device is None else f"whole numbers throughout, as --for {device} asks for them"
        )
        raise UsageError(
            f"--tflite {kind} needs {wanted}, and this bundle has blocks in int8 and others in float32: leave out "
            "--int8, or pick a trial in float32"
        )
    if int8_loss is not None and (kind == KINDS[0] or not 0 <= int8_loss <= _MOST_POINTS):
        raise UsageError(
            f"--int8-loss must be 0 to {_MOST_POINTS} points, and is for --tflite int8 and uint8; "
            f"got {int8_loss:g} with --tflite {kind}"
        )
    if find_spec("ai_edge_litert") is None:
        raise UnsupportedError(f"--tflite needs LiteRT, which is not installed: {install_command(EXTRA)}")
    most = RuntimePlan().int8_loss if int8_loss is None else int8_loss / _MOST_POINTS
    return {"kind": kind, "most_loss": most, "device": device}
