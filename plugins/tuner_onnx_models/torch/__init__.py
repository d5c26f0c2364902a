"""An ONNX file as the model: its graph as PyTorch modules, which are then cut and trained as any others."""
