"""What runs a bundle on the device: numpy, pillow and onnxruntime, nothing else."""

from tuner.runtime.bundle import Bundle
from tuner.runtime.predictor import Prediction, Predictor, Window

__all__ = ["Bundle", "Prediction", "Predictor", "Window"]
