"""What runs a bundle on the device, and trains it there again: numpy, pillow and onnxruntime, nothing else."""

from tuner.runtime.bundle import Bundle
from tuner.runtime.predictor import Prediction, Predictor, Window
from tuner.runtime.trainer import Trainer

__all__ = ["Bundle", "Prediction", "Predictor", "Trainer", "Window"]
