"""What runs the steps of a trial: PyTorch eagerly, or ONNX Runtime; a plugin adds its own."""
