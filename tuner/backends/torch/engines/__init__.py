"""What runs the steps of a trial: PyTorch eagerly, the planned executor, or ONNX Runtime."""
