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
from tuner.errors import TunerError
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
from tuner.plugin.hookspecs import API, hookimpl
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner.plugin.studies import StudyOpener, StudyReader
from tuner.results.records.trial import Outcome, TrialRecord
from tuner.results.scores.objectives import Objective, objective
from tuner.task import Task
from tuner.task.reader import TaskReader

__all__ = [
    "API",
    "Against",
    "Answers",
    "Backend",
    "Batch",
    "BatchFunction",
    "BlockInfo",
    "CachePlan",
    "Candidates",
    "Completing",
    "DataEdit",
    "DataPlan",
    "Draw",
    "EditTraits",
    "Evolving",
    "Exit",
    "Exported",
    "Extensions",
    "Filling",
    "HeadsMode",
    "HeadsPlan",
    "LossFunction",
    "LossInputs",
    "LossTerm",
    "Lowering",
    "Measure",
    "MeasuredTrial",
    "ModelInfo",
    "Objective",
    "OptimiserFactory",
    "Outcome",
    "RecipePlan",
    "RuntimePlan",
    "Scalar",
    "Selector",
    "Session",
    "Solver",
    "SolverInputs",
    "Stage",
    "Strategy",
    "StudyOpener",
    "StudyReader",
    "Tail",
    "TailBlock",
    "TailEdit",
    "Task",
    "TaskInfo",
    "TaskReader",
    "Training",
    "TrainingSamples",
    "Trial",
    "TrialPlan",
    "TrialRecord",
    "TunerError",
    "head_macs",
    "hookimpl",
    "linear_inputs",
    "objective",
]
