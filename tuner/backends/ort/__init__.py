"""What ONNX Runtime does for the backends."""
