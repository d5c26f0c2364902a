"""The configuration of a run."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Budget:
    """The user's limits; None for no limit.

    Attributes:
        time_seconds: Wall time of the whole command.
        train_seconds: Objective ``train_seconds`` of any member of the front.
        memory_bytes: Memory of a trial's process, above its resting size.
        storage_bytes: Feature store and run folder together.
        trials: Number of trials.
        forgetting: Loss of global accuracy against the untouched model, as a fraction.
        flat_seconds: Time without a better front after which a run ends.
        keep_going: Whether a run goes on where nothing is left to gain that its validation samples could show.
    """

    time_seconds: float | None = None
    train_seconds: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    trials: int | None = None
    forgetting: float | None = None
    flat_seconds: float | None = None
    keep_going: bool = False


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything a run depends on except the content of the task.

    Attributes:
        task: Name or file of the task; in angle brackets if it was given as an object.
        space: Name or file of the search space.
        seed: The study's seed.
        backend: The only backend to use; None for all.
        deterministic: Whether costs come from FLOPs instead of clocks.
        limits: The user's limits.
        plugins: Files of local plugins.
        folds: Folds that judge the plans of the top rung; 0 for none.
        study: Address of the study that several workers share, without its password; empty for a run of its own.
    """

    task: str
    space: str = "board-10min"
    seed: int = 0
    backend: str | None = None
    deterministic: bool = False
    limits: Budget = field(default_factory=Budget)
    plugins: tuple[str, ...] = ()
    folds: int = 0
    study: str = ""
