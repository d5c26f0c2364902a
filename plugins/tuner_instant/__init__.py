"""A head in closed form on any ONNX classifier, without PyTorch: an entry point of the group ``tuner.commands``."""
