"""Files of a bundle that training on the device reads and writes."""

from tuner.bundle.format import PLAN, Bundle
from tuner.bundle.info import Section, TrainInfo
from tuner.bundle.replay import Replay
from tuner.errors import BundleError
from tuner.plan.trial import TrialPlan

#: The traced step of a tail, and its inference.
STEP, TAIL = "train/step.onnx", "train/tail.onnx"
#: What a step's adapters begin with, and how they are merged into the tail's weights; where it has any.
ADAPTERS, MERGE = "train/adapters.safetensors", "train/merge.onnx"
#: The step and the inference of an exit, by its number.
STEP_OF, LOGITS_OF = "train/exit{}.onnx", "train/exit{}_logits.onnx"
#: Stored features of global samples: those that are trained on again, and those that forgetting is measured on.
REPLAY, CHECK = "train/replay.safetensors", "train/check.safetensors"
#: Weights of all exits.
EXIT_WEIGHTS = f"{Section.EXITS}.safetensors"
#: Sums of the global samples that exits in closed form begin with, by exit.
SUMS = "train/sums.safetensors"
#: The given head and the user's samples, of a head that is solved for.
SOLVED = "train/solved.safetensors"
#: Formats of the section of ``bundle.json``: of a tail's training, of exits', of a tail's with adapters, of a head that
#: is solved for.
TAIL_FORMAT, EXITS_FORMAT, ADAPTERS_FORMAT, SOLVED_FORMAT = 1, 2, 3, 4
MOST_EPOCHS = 10_000


def train_info(bundle: Bundle, *wanted: int) -> TrainInfo:
    """Return what a bundle says of its training.

    Args:
        bundle: Exported with ``--trainable``.
        wanted: Formats that are expected.

    Raises:
        BundleError: It was not exported to be trained, or for another version.
    """
    info = bundle.info.train
    if info is None:
        raise BundleError(f"{bundle.folder} cannot be trained: export it with `tuner export RUN OUT --trainable`")
    if info.format not in wanted:
        readable = " and ".join(map(str, wanted))
        raise BundleError(
            f"{bundle.folder} has training format {info.format!r}, this version reads {readable}: update tuner"
        )
    return info


def plan_of(bundle: Bundle) -> TrialPlan:
    """Return the plan that a bundle trains by.

    Raises:
        BundleError: It cannot be read, or trains for more epochs than any device would.
    """
    plan = bundle.plan()
    if plan.recipe.epochs > MOST_EPOCHS:
        raise BundleError(
            f"{bundle.file(PLAN)}: recipe.epochs must be at most {MOST_EPOCHS:,}, "
            f"got {plan.recipe.epochs}: export again"
        )
    return plan


def replay_of(bundle: Bundle, name: str) -> Replay:
    """Return the stored features of global samples in a file of a bundle.

    Raises:
        TunerError: They cannot be read, or have other labels than the bundle.
    """
    path = bundle.file(name)
    return Replay.load(path).checked(path, len(bundle.labels), bundle.targets)
