"""Training steps as ONNX files: the entry point of the group ``tuner.step_writers`` of exports and trials."""
