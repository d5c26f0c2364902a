"""ONNX files as models: what ``model.weights = "net.onnx"`` names is opened as a model of PyTorch.

The opener is an entry point of the group ``tuner.model_files``; PyTorch is imported when a file is opened.
"""
