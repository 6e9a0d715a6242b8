"""Training: experiments, trainers, optimizers, run folders."""

from sopa_plugin.training.accelerate_trainer import AccelerateTrainer
from sopa_plugin.training.evaluation import evaluate_run
from sopa_plugin.training.experiment import Experiment, run_experiment
from sopa_plugin.training.run_folder import RunFolder
from sopa_plugin.training.schedules import Optimizer, Scheduler
from sopa_plugin.training.sklearn_trainer import SklearnTrainer
from sopa_plugin.training.trainer import Trainer

__all__ = [
    "AccelerateTrainer",
    "Experiment",
    "Optimizer",
    "RunFolder",
    "Scheduler",
    "SklearnTrainer",
    "Trainer",
    "evaluate_run",
    "run_experiment",
]
