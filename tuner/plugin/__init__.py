"""What plugin authors import: strategies, knobs, plans, objectives and hooks."""

from tuner.backends.base import Backend, Exported, Filling, Session, Trial
from tuner.backends.batches import Batch, BatchFunction
from tuner.backends.extensions import Extensions, OptimiserFactory
from tuner.backends.losses import LossFunction, LossInputs
from tuner.backends.lowering import (
    Completing,
    Evolving,
    Lowering,
    Solver,
    SolverInputs,
    Tail,
    TailBlock,
    Training,
    TrainingSamples,
)
from tuner.backends.measuring import Answers, Measure, MeasuredTrial
from tuner.backends.selecting import Candidates, Selector
from tuner.backends.torch.backend import TorchBackend
from tuner.errors import TunerError, UnsupportedError
from tuner.plan.heads import Against, Exit, HeadsMode, HeadsPlan, head_macs, linear_inputs
from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo
from tuner.plan.parts import (
    CachePlan,
    DataEdit,
    DataPlan,
    EditTraits,
    LossTerm,
    RecipePlan,
    RuntimePlan,
    Scalar,
    Stage,
    TailEdit,
)
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.plugin import ridge
from tuner.plugin.hookspecs import API, hookimpl
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.plugin.studies import StudyOpener, StudyReader
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome, TrialRecord
from tuner.results.scores.objectives import Objective, objective
from tuner.store.store import Store
from tuner.task import ArraySamples, Domain, InputDefaults, InputSpec, ModelSpec, Task
from tuner.task.reader import TaskReader

__all__ = [
    "API",
    "Against",
    "Answers",
    "ArraySamples",
    "Backend",
    "Batch",
    "BatchFunction",
    "BlockInfo",
    "CachePlan",
    "Candidates",
    "ClassCounts",
    "Completing",
    "DataEdit",
    "DataPlan",
    "Domain",
    "Draw",
    "EditTraits",
    "Evolving",
    "Exit",
    "Exported",
    "Extensions",
    "Filling",
    "FirstSteps",
    "HeadsMode",
    "HeadsPlan",
    "InputDefaults",
    "InputSpec",
    "LossFunction",
    "LossInputs",
    "LossTerm",
    "Lowering",
    "Measure",
    "MeasuredTrial",
    "ModelInfo",
    "ModelSpec",
    "Objective",
    "OptimiserFactory",
    "Outcome",
    "Rates",
    "RecipePlan",
    "RuntimePlan",
    "Scalar",
    "Selector",
    "Session",
    "Solver",
    "SolverInputs",
    "Stage",
    "StepPlan",
    "Store",
    "Strategy",
    "StudyOpener",
    "StudyReader",
    "Tail",
    "TailBlock",
    "TailEdit",
    "Task",
    "TaskInfo",
    "TaskReader",
    "TorchBackend",
    "Training",
    "TrainingSamples",
    "Trial",
    "TrialPlan",
    "TrialRecord",
    "TunerError",
    "UnsupportedError",
    "head_macs",
    "hookimpl",
    "linear_inputs",
    "objective",
    "ridge",
]
