"""Files of a bundle that training on the device reads and writes."""

from collections.abc import Mapping

from tuner.bundle.format import PLAN, Bundle
from tuner.bundle.info import TRAIN_FORMAT, Section, TrainInfo, TrainKind
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
#: Stored features of the user's samples that a tail was trained on; their most bytes by default, and largest number.
OWN, OWN_BYTES, MOST_OWN = "train/own.safetensors", 2 * 10**6, 2000
#: Weights of all exits.
EXIT_WEIGHTS = f"{Section.EXITS}.safetensors"
#: Sums of the global samples that exits in closed form begin with, by exit.
SUMS = "train/sums.safetensors"
#: The given head and the user's samples, of a head that is solved for.
SOLVED = "train/solved.safetensors"
#: Classes of `tuner.runtime` that train a bundle, by its kind.
TRAINERS: Mapping[str, str] = {
    TrainKind.TAIL: "Trainer",
    TrainKind.ADAPTERS: "Trainer",
    TrainKind.EXITS: "ExitsTrainer",
    TrainKind.CLOSED_FORM: "SolvingTrainer",
    TrainKind.SUMS: "SolvingTrainer",
}
MOST_EPOCHS = 10_000


def train_info(bundle: Bundle, trainer: str) -> TrainInfo:
    """Return what a bundle says of its training by a class of `tuner.runtime`.

    Raises:
        BundleError: It was not exported to be trained, for another version, or is trained by another class.
    """
    if bundle.exits and trainer != TRAINERS[TrainKind.EXITS]:
        raise BundleError(f"{bundle.folder} trains its exits: use tuner.runtime.ExitsTrainer")
    if not bundle.exits and trainer == TRAINERS[TrainKind.EXITS]:
        raise BundleError(f"{bundle.folder} has no exits to train: use tuner.runtime.Trainer")
    info = bundle.info.train
    if info is None:
        raise BundleError(f"{bundle.folder} cannot be trained: export it with `tuner export RUN OUT --trainable`")
    if info.format != TRAIN_FORMAT:
        raise BundleError(
            f"{bundle.folder} has training format {info.format}, this version reads {TRAIN_FORMAT}: update tuner"
        )
    if (own := TRAINERS.get(info.kind)) != trainer:
        way_out = f"use tuner.runtime.{own}" if own else "update tuner"
        raise BundleError(f"{bundle.folder} has a training of kind {info.kind!r:.40}, not {trainer}'s: {way_out}")
    return info


def plan_of(bundle: Bundle) -> TrialPlan:
    """Return the plan that a bundle trains by; for more epochs than any device would is refused."""
    plan = bundle.plan()
    if plan.recipe.epochs > MOST_EPOCHS:
        raise BundleError(
            f"{bundle.file(PLAN)}: recipe.epochs must be at most {MOST_EPOCHS:,}, "
            f"got {plan.recipe.epochs}: export again"
        )
    return plan


def replay_of(bundle: Bundle, name: str) -> Replay:
    """Return the stored features of samples in a file of a bundle, which must have its labels."""
    path = bundle.file(name)
    replay = Replay.load(path)
    if not bundle.targets.fits(replay.labels, len(bundle.labels)):
        raise BundleError(f"{path} has labels that are not among the bundle's {len(bundle.labels)}: export again")
    return replay
